"""`diptych data`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from diptych.cli.console import progress_bar, stdout
from diptych.cli.options import Data

app = typer.Typer(help="Look at a corpus.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at a corpus."""


@app.command("check")
def check_command(
    data: Data,
    decode: Annotated[bool, typer.Option(help="Also decode every image.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Print counts, splits, caption lengths, duplicates across splits, and every problem with its file and row.

    Exits with 1 if there is a problem.

    Examples:

        diptych data check photos/

        diptych data check dataset_flickr8k.json --json
    """
    from diptych.data.check import check
    from diptych.data.open import open_corpus

    corpus = open_corpus(data)
    with progress_bar("images") as watch:
        report = check(corpus, decode=decode, progress=watch)
    if as_json:
        stdout.print_json(json.dumps(report.to_json()))
    else:
        stdout.print(report.render(), soft_wrap=True)
    if report.problems:
        raise typer.Exit(1)
