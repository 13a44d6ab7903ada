"""`diptych calibrate`."""

from __future__ import annotations

from typing import Annotated

import typer

from diptych.cli.console import print_note, print_result, print_skipped, progress_bar
from diptych.cli.open_data import open_data
from diptych.cli.options import AllowCode, Data, Device, Run, Workers, thread_count
from diptych.errors import DataError


def command(
    run: Run,
    data: Data,
    split: Annotated[str, typer.Option(help="The split: captioned photos that the model was not trained on.")] = "val",
    device: Device = "auto",
    workers: Workers = None,
    _allowed_code: AllowCode = None,
) -> None:
    """Learn how probable it is that a text describes a photo, given the model's score, and store it with the run.

    Searches then say for each hit how well it fits, and whether anything was found. `diptych train` does it at the end
    of a training, so this is for runs that have none or whose weights were changed. 100 captioned photos are needed,
    and 1,000 are used.

    Examples:

        diptych calibrate runs/first photos.csv

        diptych calibrate starter flickr8k/dataset_flickr8k.json
    """
    from diptych.machine import keep_freed_memory
    from diptych.model import Model
    from diptych.models.address import names_pair, run_folder
    from diptych.models.calibration.calibrate import calibrate
    from diptych.models.calibration.calibration import FILE

    keep_freed_memory()
    if names_pair(run):
        raise DataError(f"{run}: a pretrained pair has no folder to store a calibration in; make a run of it first")
    model = Model.load(run, device)
    part = open_data(data, runs=[run]).split(split)
    with progress_bar("encoding") as progress:
        encoded = model.encode_corpus(part, thread_count(workers), progress)
    print_skipped(encoded.skipped)
    folder = run_folder(run)
    figures = calibrate(model.engine, model.identity, encoded, folder).figures
    for name, value in figures.items():
        print_note(f"{name.replace('_', ' ')}: {value:g}")
    print_result(f"wrote {folder / FILE}")
