"""`diptych data`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import print_note, print_skipped, progress_bar, stdout
from diptych.cli.open_data import open_data, split_rule
from diptych.cli.options import Data, TestShare, ValShare, Workers, thread_count

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Inspect a corpus, or write it as shards."""


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


@app.command("shard")
def shard_command(
    data: Data,
    into: Annotated[Path, typer.Option(help="The folder of the shards.")],
    samples: Annotated[int, typer.Option(min=1, help="Images per shard.")] = 1000,
    workers: Workers = None,
    val: ValShare = None,
    test: TestShare = None,
) -> None:
    """Write a corpus as shards (tar files in the layout of WebDataset), from which training streams.

    Every image has its texts with it, splits are kept, and index.json has the counts and hashes. An interrupted
    command goes on where it ended.

    Examples:

        diptych data shard dataset_coco.json --into shards/

        diptych train diptych-default shards/
    """
    from diptych.data.shards.writing import write_shards
    from diptych.data.splitting import describe_splits

    corpus = open_data(data, split_rule(val, test))
    if corpus.split_origin != "source":
        print_note(str(describe_splits(corpus)))
    if corpus.boxes is not None or corpus.phrases is not None:
        print_note("shards hold images and texts; boxes and phrases of the data are left out")
    with progress_bar("images") as progress:
        written = write_shards(corpus, into, samples, workers=thread_count(workers), progress=progress)
    print_skipped(dict(enumerate(written.skipped)))
    sizes = {split: sum(shard.count([split]) for shard in written.shards) for split in corpus.split_sizes()}
    images = ", ".join(f"{split} {count:,}" for split, count in sizes.items())
    texts, size = sum(shard.texts for shard in written.shards), sum(shard.size or 0 for shard in written.shards)
    plural = "s" * (len(written.shards) > 1)
    before = f", {written.reused:,} of them written before" if written.reused else ""
    stdout.print(
        f"{into}: {len(written.shards):,} shard{plural}{before}, {size / 1e6:,.1f} MB "
        f"(images: {images}; {texts:,} texts)",
        soft_wrap=True,
        highlight=False,
    )
