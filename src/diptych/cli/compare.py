"""`diptych compare`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from diptych.cli.console import print_note, print_skipped, progress_bar, stdout
from diptych.cli.open_data import open_data
from diptych.cli.options import AllowCode, Device, Download, Features, Split, Workers, thread_count
from diptych.errors import RunError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.evaluation.localisation.phrase_metrics import GroundingResult
    from diptych.model import Model
    from diptych.models.encoded_corpus import EncodedCorpus

_PAGE = Path("compare.html")
_SUFFIXES = (".html", ".md", ".json")


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="The folders of the runs; the first is the baseline."),
    ],
    data: Annotated[
        str | None, typer.Option(help="The corpus to compare them on.", show_default="the corpus they were trained on")
    ] = None,
    split: Split = "test",
    folds: Annotated[int, typer.Option(min=1, help="Average over this many consecutive galleries.")] = 1,
    into: Annotated[
        list[Path] | None,
        typer.Option(help="A file to write: .html, .md or .json; repeatable.", show_default=str(_PAGE)),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Selects the random queries on the page.")] = 0,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Compare runs on a corpus: recalls, differences from the first run, and queries on which the runs differ.

    Runs that were trained on phrases are compared by phrase localisation, in a table without a page.

    A folder of `diptych train --seeds` stands for its runs: folders are compared seed by seed, and pooled over seeds.

    Examples:

        diptych compare runs/vse0 runs/vsepp

        diptych compare runs/vsepp runs/convse runs/convsepp --data data/coco --folds 5 --into table.md

        diptych compare runs/a runs/b --split val --into runs/ab.html --into runs/ab.json

        diptych compare runs/vse0-seeds runs/vsepp-seeds --into seeds.md
    """
    from diptych.machine import keep_freed_memory
    from diptych.report.comparison.compare import check_comparable
    from diptych.report.comparison.seeds import has_seeds, seed_runs
    from diptych.training.recipe_loader import trained_on_phrases

    with_seeds = any(map(has_seeds, runs))
    if not with_seeds:
        check_comparable(runs)
    on_phrases = not with_seeds and any(map(trained_on_phrases, runs))
    files = into or ([] if on_phrases or with_seeds else [_PAGE])
    for file in files:
        _check_file(file)
    if with_seeds:
        _check_without_page(runs[0], "holds several seeds", files)
    if on_phrases:
        _check_for_phrases(runs[0], folds, files)
    keep_freed_memory()
    seeds = [run for folder in runs for run in seed_runs(folder).values()] if with_seeds else runs
    corpus = None if data is None else open_data(data, runs=seeds)
    if with_seeds:
        output = _compare_seeds(runs, corpus, split, folds, features, device, thread_count(workers))
    elif on_phrases:
        output = _compare_phrases(runs, corpus, split, features, device, thread_count(workers))
    else:
        output = _compare_retrieval(runs, corpus, split, folds, seed, features, device, thread_count(workers))
    output.show(as_json, files)


@dataclass(frozen=True)
class _Output:
    """A comparison in every form in which it is printed or written; `write` maps suffixes to writers of files."""

    notes: Sequence[str]
    table: Table
    json: dict[str, Any]
    write: Mapping[str, Callable[[Path], None]]

    def show(self, as_json: bool, files: Sequence[Path]) -> None:
        """Print the comparison and write the files."""
        for line in self.notes:
            print_note(line)
        if as_json:
            stdout.print_json(json.dumps(self.json))
        else:
            stdout.print(self.table)
        for file in files:
            self.write[file.suffix.lower()](file)
            print_note(f"wrote {file}")


def _compare_retrieval(
    runs: list[Path],
    corpus: Corpus | None,
    split: str,
    folds: int,
    seed: int,
    features: Path,
    device: str,
    workers: int,
) -> _Output:
    from diptych.files import write_json, write_text
    from diptych.report.comparison.compare import compare
    from diptych.report.comparison.page import write_comparison_page
    from diptych.report.comparison.tables import comparison_json, comparison_markdown, comparison_table

    def encode(name: str, model: Model, part: Corpus) -> EncodedCorpus:
        with progress_bar(f"encoding {name}") as progress:
            encoded = model.encode_corpus(part, workers, progress)
        print_skipped(encoded.skipped)
        return encoded

    comparison = compare(runs, corpus, split, folds=folds, device=device, stores=features, encode=encode)
    content = comparison_json(comparison)
    writers = {
        ".html": lambda file: write_comparison_page(file, comparison, seed),
        ".md": lambda file: write_text(file, comparison_markdown(comparison)),
        ".json": lambda file: write_json(file, content),
    }
    return _Output(comparison.notes, comparison_table(comparison), content, writers)


def _compare_phrases(
    runs: list[Path], corpus: Corpus | None, split: str, features: Path, device: str, workers: int
) -> _Output:
    from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
    from diptych.files import write_json, write_text
    from diptych.report.comparison.phrases import compare_phrases

    def localise(name: str, model: Model, part: Corpus) -> GroundingResult:
        with progress_bar(f"localising phrases of {split} with {name}") as progress:
            found = evaluate_phrases(model, part, split, workers=workers, progress=progress)
        print_skipped(found.skipped)
        return found

    comparison = compare_phrases(runs, corpus, split, device=device, stores=features, localise=localise)
    content = comparison.to_json()
    writers = {
        ".md": lambda file: write_text(file, comparison.to_markdown()),
        ".json": lambda file: write_json(file, content),
    }
    return _Output(comparison.notes, comparison.render(), content, writers)


def _compare_seeds(
    folders: list[Path], corpus: Corpus | None, split: str, folds: int, features: Path, device: str, workers: int
) -> _Output:
    from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
    from diptych.evaluation.metrics.recall import CUTOFFS
    from diptych.evaluation.metrics.significance import draw_metrics
    from diptych.evaluation.runs import evaluate_encoded
    from diptych.files import write_json, write_text
    from diptych.model import Model
    from diptych.report.comparison.seeds import MeasuredRun, compare_seeds
    from diptych.training.recipe_loader import trained_on_phrases

    def measure(run: Path, corpus: Corpus) -> MeasuredRun:
        model = Model.load(run, device, stores=features)
        with progress_bar(f"measuring {run}") as progress:
            if trained_on_phrases(run):
                found = evaluate_phrases(model, corpus, split, workers=workers, progress=progress)
                print_skipped(found.skipped)
                return found.metrics, dict(zip(found.metrics, found.bootstrap_metrics.T, strict=True))
            encoded = model.encode_corpus(corpus.split(split).matched(), workers, progress)
        print_skipped(encoded.skipped)
        result = evaluate_encoded([encoded], folds=folds, average_precision=False)
        intervals = result.intervals
        return result.metrics.to_json(), draw_metrics(result.folds, CUTOFFS, intervals.draws, intervals.seed)

    comparison = compare_seeds(folders, corpus, split, measure)
    content = comparison.to_json()
    writers = {
        ".md": lambda file: write_text(file, comparison.to_markdown()),
        ".json": lambda file: write_json(file, content),
    }
    return _Output(comparison.notes, comparison.render(), content, writers)


def _check_for_phrases(run: Path, folds: int, files: Sequence[Path]) -> None:
    """Raise a RunError for what the comparison of phrase localisation does not support."""
    if folds > 1:
        raise RunError(f"{run}: was trained on phrases, which are compared without folds; remove --folds")
    _check_without_page(run, "was trained on phrases", files)


def _check_without_page(run: Path, why: str, files: Sequence[Path]) -> None:
    for file in files:
        if file.suffix.lower() == ".html":
            raise RunError(
                f"{run}: {why}, for which there is no page; name a file that ends in .md or .json, not {file}"
            )


def _check_file(file: Path) -> None:
    """Raise a RunError, before the runs are measured, if the file cannot be written."""
    if file.is_dir():
        raise RunError(f"{file}: is a folder; name a file to write, such as {file / _PAGE}")
    if file.suffix.lower() not in _SUFFIXES:
        raise RunError(f"{file}: unknown format; name a file that ends in {', '.join(_SUFFIXES)}")
