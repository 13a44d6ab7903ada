"""`diptych data`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from diptych.cli.console import print_note, progress_bar, stdout
from diptych.cli.open_data import open_data, split_rule
from diptych.cli.options import Data, TestShare, ValShare

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Inspect a corpus."""


@app.command("check")
def check_command(
    data: Data,
    decode: Annotated[bool, typer.Option(help="Also decode every image.")] = True,
    val: ValShare = None,
    test: TestShare = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check a corpus and print counts, splits, caption lengths, duplicates across splits, and all problems.

    A problem is printed with its file and row. The exit status is 1 if there is a problem.

    Examples:

        diptych data check photos/

        diptych data check dataset_flickr8k.json --json
    """
    from diptych.data.check import check
    from diptych.data.splitting import describe_splits
    from diptych.report.tables.data_check import data_check_summary

    corpus = open_data(data, split_rule(val, test))
    if corpus.split_origin == "default":
        print_note(str(describe_splits(corpus)))
    with progress_bar("images") as progress:
        report = check(corpus, decode=decode, progress=progress)
    if as_json:
        stdout.print_json(json.dumps(report.to_json()))
    else:
        stdout.print(data_check_summary(report), soft_wrap=True)
    if report.problems:
        raise typer.Exit(1)
