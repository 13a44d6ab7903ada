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
