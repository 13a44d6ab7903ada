"""`diptych encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import print_result, print_skipped, print_unknown_texts, progress_bar
from diptych.cli.open_data import open_data
from diptych.cli.options import AllowCode, Data, Device, Download, Run, Split, Workers, thread_count
from diptych.errors import DataError


def command(
    run: Run,
    data: Data,
    into: Annotated[Path, typer.Option(help="The file to write (safetensors).")],
    split: Split = "test",
    device: Device = "auto",
    workers: Workers = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Encode the images and texts of a split with a run, and save the encodings.

    The file contains `images`, `texts` and their groups; `diptych evaluate FILE` evaluates it without the run.

    Examples:

        diptych encode runs/first scenes --into test.safetensors

        diptych encode runs/first photos/ --split train --into train.safetensors
    """
    from diptych.machine import keep_freed_memory
    from diptych.model import Model

    keep_freed_memory()
    if into.is_dir():
        raise DataError(f"{into}: is a folder; name a file to write")
    model = Model.load(run, device)
    corpus = open_data(data, runs=[run]).split(split)
    with progress_bar("encoding") as progress:
        encoded = model.encode_corpus(corpus, thread_count(workers), progress)
    print_skipped(encoded.skipped)
    print_unknown_texts(model, corpus.texts)
    encoded.save(into)
    print_result(f"wrote {into}: {len(encoded.images):,} images, {len(encoded.texts):,} texts")
