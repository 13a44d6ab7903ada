"""`diptych compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import bar, note, out, say_skipped
from diptych.cli.options import Data, Device, Run, Split, Workers
from diptych.errors import RunError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.models.encoded import Encoded
    from diptych.models.trained import Trained


def command(
    run: Run,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The folder of the run to compare it with.")],
    data: Data,
    split: Split = "test",
    into: Annotated[Path, typer.Option(help="The page to write.")] = Path("compare.html"),
    seed: Annotated[int, typer.Option(min=0, help="Draws the images that are shown at random.")] = 0,
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Compare two runs on a corpus: their recalls, whether they differ, and what each finds first.

    Examples:

        diptych compare runs/vse0 runs/vsepp data/flickr8k

        diptych compare runs/a runs/b scenes --split val --into runs/compare.html
    """
    from diptych.data.open import open_corpus
    from diptych.machine import cores, keep_freed_memory
    from diptych.report.comparison import compare
    from diptych.report.comparison_page import write_comparison

    if into.is_dir():
        raise RunError(f"{into}: is a folder; name a file to write, such as {into / 'compare.html'}")
    keep_freed_memory()
    threads = cores() if workers is None else workers

    def encode(name: str, trained: Trained, corpus: Corpus) -> Encoded:
        with bar(f"encoding {name}") as watch:
            encoded = trained.encode(corpus, threads, watch)
        say_skipped(encoded.skipped)
        return encoded

    comparison = compare(run, other, open_corpus(data), split, device=device, encode=encode)
    out.print(comparison.render())
    write_comparison(into, comparison, seed)
    note(f"wrote {into}")
