"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A corpus: 'scenes', a dataset JSON, a CSV/JSONL table, or a folder."),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Split = Annotated[str, typer.Option(help="train, val, test or restval.")]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Threads that read images ahead; never changes a result.", show_default="cores"),
]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or a .toml file.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable.")
]
Features = Annotated[Path, typer.Option(help="The folder that keeps a frozen backbone's features.")]
Seeds = Annotated[
    str | None, typer.Option(metavar="N|LIST", help="One run a seed: 5 for the seeds 0 to 4, or a list such as 0,3,7.")
]
ReportOn = Annotated[str, typer.Option(metavar="SPLIT", help="The split that the table of several runs is about.")]
