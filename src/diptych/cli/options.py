"""Arguments and options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A corpus: 'scenes', a dataset JSON, a CSV/JSONL table, or a folder."),
]
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run, or a pretrained pair: open_clip:NAME/TAG, a folder.")
]
Index = Annotated[
    str, typer.Argument(metavar="INDEX|FOLDER", help="An index, or a folder that `diptych open` has indexed.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Devices = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Start N processes on this machine: one per GPU, or that share its cores."),
]
Split = Annotated[str, typer.Option(help="train, val, test or restval.")]
ValShare = Annotated[
    float | None,
    typer.Option("--val", metavar="SHARE", help="Data without splits: the share of its images in val, such as 0.15."),
]
TestShare = Annotated[
    float | None, typer.Option("--test", metavar="SHARE", help="Data without splits: the share of its images in test.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Threads that read images ahead; they do not affect results.", show_default="cores"),
]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or a .toml file.")]
ProfileName = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="The recipe in another size: small, for two CPU cores.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable.")
]
Features = Annotated[Path, typer.Option(help="The folder with the stored features of frozen backbones.")]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log", metavar="NAME", help="Also log to tensorboard, wandb or mlflow, in the run's folder; repeatable."
    ),
]
NoStarter = Annotated[
    bool,
    typer.Option(
        "--no-starter",
        help="Do not compare with what the run started from, nor with the starter; both take time if photos are new.",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="N|LIST", help="One run per seed: 5 for the seeds 0 to 4, or a list such as 0,3,7."),
]
ReportOn = Annotated[str, typer.Option(metavar="SPLIT", help="The split of the table that summarises the runs.")]


SearchCodes = Annotated[
    Literal["auto", "int8", "pq"],
    typer.Option(
        help="Select candidates by codes of one byte per number, or per eight numbers (needs faiss), and score these."
    ),
]


def _allow_code(modules: list[str] | None) -> list[str] | None:
    """Allow the modules, which are also looked for in the working directory, after all other places."""
    if modules:
        from diptych import plugins

        plugins.allow_code(*modules)
        plugins.installed("objectives")  # read now: packages in the working directory are not installed ones
        here = str(Path.cwd())
        if not {"", here} & set(sys.path):
            sys.path.append(here)
    return modules


# The callback does everything, so commands do not use the value.
AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-code",
        metavar="MODULE",
        callback=_allow_code,
        help="Let recipes and runs use the classes of this Python module (module:Class); repeatable.",
        show_default=False,
    ),
]


def _allow_downloads(download: bool) -> bool:
    if download:
        from diptych.models.pretrained_pairs.hub import allow_downloads

        allow_downloads()
    return download


# The callback does everything here, too.
Download = Annotated[
    bool,
    typer.Option(
        "--download",
        callback=_allow_downloads,
        help="Fetch files of a pretrained pair that are not in the cache from the Hugging Face hub.",
    ),
]


def thread_count(workers: int | None) -> int:
    """The value of --workers, which defaults to the number of cores."""
    from diptych.machine import available_cores

    return available_cores() if workers is None else workers
