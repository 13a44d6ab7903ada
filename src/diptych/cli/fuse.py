"""`diptych fuse`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from diptych.cli.console import print_note, print_result, progress_bar, stdout
from diptych.cli.open_data import open_data, split_rule
from diptych.cli.options import AllowCode, Device, Download, Features, TestShare, ValShare, Workers, thread_count
from diptych.errors import RecipeError, RunError

if TYPE_CHECKING:
    from diptych.training.fusion import Fusion

_COLUMNS = (
    *(("i2t@1", "i2t_r1"), ("@5", "i2t_r5"), ("@10", "i2t_r10")),
    *(("t2i@1", "t2i_r1"), ("@5", "t2i_r5"), ("@10", "t2i_r10")),
    ("rsum", "rsum"),
)


def command(
    sources: Annotated[
        list[str], typer.Argument(metavar="RUN RUN... DATA", help="The runs to fuse, followed by the corpus.")
    ],
    into: Annotated[Path, typer.Option(help="The folder of the fused run.")],
    shares: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The share of each run, instead of the best on val.")
    ] = None,
    step: Annotated[float, typer.Option(help="Shares are multiples of this.")] = 0.05,
    raw: Annotated[
        bool, typer.Option("--raw", help="Weight the scores as they are, not divided by their standard deviation.")
    ] = False,
    select: Annotated[str, typer.Option(help="The metric on val that decides.")] = "rsum",
    val: ValShare = None,
    test: TestShare = None,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Fuse runs into one model, whose score is the weighted sum of theirs.

    The runs are embedding models that read images in the same way, with the same backbone and tokeniser. Their shares
    are chosen on val. The fused run is an embedding model like any other, and its backbone runs once.

    Examples:

        diptych fuse runs/mine runs/classes data/flickr8k --into runs/fused

        diptych fuse runs/a runs/b scenes --shares 0.7,0.3 --into runs/fused
    """
    from diptych.machine import keep_freed_memory
    from diptych.training.fusion import fuse

    keep_freed_memory()
    *runs, data = sources
    if len(runs) < 2:
        raise RunError("name at least two runs to fuse, and the data to choose their shares on")
    with progress_bar("encoding val") as progress:
        fusion = fuse(
            runs,
            open_data(data, split_rule(val, test), runs),
            into,
            shares=_read_shares(shares),
            step=step,
            standardise=not raw,
            select=select,
            device=device,
            features=features,
            workers=thread_count(workers),
            progress=progress,
        )
    stdout.print(_table(fusion))
    best = fusion.best
    figure = f"{select} {best.metrics[select]:.1f} on val"
    if not best.is_mixture:
        kept = " and ".join(run for run, share in zip(fusion.runs, best.shares, strict=True) if share > 0)
        raise RunError(f"nothing was written: {kept} alone is best ({figure}); use that, or give --shares")
    named = ", ".join(f"{share:g} {run}" for run, share in zip(fusion.runs, best.shares, strict=True))
    print_result(f"fused {into}: {named} ({figure})", "bold green")
    print_note(f"evaluate it with: diptych evaluate {into} {data}")


def _read_shares(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise RecipeError(f"--shares {text}: write one number per run, such as 0.7,0.3") from None


def _table(fusion: Fusion) -> Table:
    """One row per trial: shares, the weights of the scores, and metrics; the best is bold."""
    table = Table(box=None)
    for title in (*(Path(run).name for run in fusion.runs), "weights", *(title for title, _ in _COLUMNS)):
        table.add_column(title, justify="right", no_wrap=True)
    for trial in fusion.trials:
        weights = " ".join(f"{weight:.3f}" for weight in trial.weights)
        metrics = (f"{trial.metrics[name]:.1f}" for _, name in _COLUMNS)
        style = "bold" if trial is fusion.best else ""
        table.add_row(*(f"{share:g}" for share in trial.shares), weights, *metrics, style=style)
    return table
