"""`diptych compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import print_note, print_skipped, progress_bar, stdout
from diptych.cli.options import Device, Features, Split, Workers
from diptych.errors import RunError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.evaluation.localisation.phrase_metrics import GroundingResult
    from diptych.models.encodings import Encoded
    from diptych.models.trained import Trained
    from diptych.report.comparison.compare import Comparison

_PAGE = Path("compare.html")
_SUFFIXES = (".html", ".md", ".json")


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="Folders of runs; the first is what the others are compared with."),
    ],
    data: Annotated[
        str | None, typer.Option(help="The corpus to compare them on.", show_default="what they were trained on")
    ] = None,
    split: Split = "test",
    folds: Annotated[int, typer.Option(min=1, help="Mean over this many consecutive galleries.")] = 1,
    into: Annotated[
        list[Path] | None,
        typer.Option(help="A file to write: .html, .md or .json; may be given again.", show_default=str(_PAGE)),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Draws the queries that are shown at random.")] = 0,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Compare runs on a corpus: their recalls, whether they differ from the first, and what each finds.

    Runs that were trained on phrases are compared by how well they find them, in a table.

    Examples:

        diptych compare runs/vse0 runs/vsepp

        diptych compare runs/vsepp runs/convse runs/convsepp --data data/coco --folds 5 --into table.md

        diptych compare runs/a runs/b --split val --into runs/ab.html --into runs/ab.json
    """
    from diptych.data.open import open_corpus
    from diptych.machine import available_cores, keep_freed_memory
    from diptych.report.comparison.compare import check_comparable, compare
    from diptych.report.comparison.tables import comparison_json, comparison_table
    from diptych.training.recipe_loader import trained_on_phrases

    check_comparable(runs)
    on_phrases = any(map(trained_on_phrases, runs))
    files = into or ([] if on_phrases else [_PAGE])
    for file in files:
        _check_file(file)
    keep_freed_memory()
    threads = available_cores() if workers is None else workers
    if on_phrases:
        _compare_phrases(runs, data, split, folds, files, as_json, features, device, threads)
        return

    def encode(name: str, trained: Trained, corpus: Corpus) -> Encoded:
        with progress_bar(f"encoding {name}") as progress:
            encoded = trained.encode(corpus, threads, progress)
        print_skipped(encoded.skipped)
        return encoded

    corpus = None if data is None else open_corpus(data)
    comparison = compare(runs, corpus, split, folds=folds, device=device, stores=features, encode=encode)
    for line in comparison.notes:
        print_note(line)
    if as_json:
        stdout.print_json(json.dumps(comparison_json(comparison)))
    else:
        stdout.print(comparison_table(comparison))
    for file in files:
        _write(file, comparison, seed)
        print_note(f"wrote {file}")


def _compare_phrases(
    runs: list[Path],
    data: str | None,
    split: str,
    folds: int,
    files: list[Path],
    as_json: bool,
    features: Path,
    device: str,
    workers: int,
) -> None:
    """Compare runs that find phrases: a table, without a page."""
    from diptych.cli.training_runs import find_phrases
    from diptych.data.open import open_corpus
    from diptych.files import write_json, write_text
    from diptych.report.comparison.phrases import compare_phrases

    why = f"{runs[0]}: was trained on phrases, and such runs are compared"
    if folds > 1:
        raise RunError(f"{why} on all of a split; leave --folds out")
    for file in files:
        if file.suffix.lower() == ".html":
            raise RunError(f"{why} in a table; name a file that ends in .md or .json, not {file}")

    def localise(name: str, trained: Trained, corpus: Corpus) -> GroundingResult:
        return find_phrases(Path(name), trained, corpus, split, workers)

    corpus = None if data is None else open_corpus(data)
    comparison = compare_phrases(runs, corpus, split, device=device, stores=features, localise=localise)
    for line in comparison.notes:
        print_note(line)
    if as_json:
        stdout.print_json(json.dumps(comparison.to_json()))
    else:
        stdout.print(comparison.render())
    for file in files:
        if file.suffix.lower() == ".md":
            write_text(file, comparison.to_markdown())
        else:
            write_json(file, comparison.to_json())
        print_note(f"wrote {file}")


def _check_file(file: Path) -> None:
    """Find out before the runs are measured what cannot be written."""
    if file.is_dir():
        raise RunError(f"{file}: is a folder; name a file to write, such as {file / _PAGE}")
    if file.suffix.lower() not in _SUFFIXES:
        raise RunError(f"{file}: cannot tell what to write; name a file that ends in {', '.join(_SUFFIXES)}")


def _write(file: Path, comparison: Comparison, seed: int) -> None:
    from diptych.files import write_json, write_text
    from diptych.report.comparison.page import write_comparison_page
    from diptych.report.comparison.tables import comparison_json, comparison_markdown

    match file.suffix.lower():
        case ".md":
            write_text(file, comparison_markdown(comparison))
        case ".json":
            write_json(file, comparison_json(comparison))
        case _:
            write_comparison_page(file, comparison, seed)
