"""What the commands that train have in common: the report of a run, and several runs that are trained and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.cli.console import print_note, print_skipped, progress_bar, stderr
from diptych.errors import RunError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.evaluation.localisation.phrase_metrics import GroundingResult
    from diptych.models.encodings import Encoded
    from diptych.models.trained import Trained
    from diptych.training.engine.callbacks import Watcher
    from diptych.training.recipe import Recipe


def open_data(data: str) -> Corpus:
    """The corpus to train on; rows that were left out are counted."""
    from diptych.data.open import open_corpus

    corpus = open_corpus(data)
    if corpus.problems:
        count = len(corpus.problems)
        problems = "1 problem" if count == 1 else f"{count:,} problems"
        print_note(f"the data has {problems}, each left out or mended; `diptych data check {data}` lists them")
    return corpus


def report_on_val(run: Path, trained: Trained, corpus: Corpus, workers: int) -> dict[str, float]:
    """Measure a run that was just trained on val and write its report from that; the metrics by name."""
    from diptych.evaluation.metrics.average_precision import average_precision_applies
    from diptych.evaluation.runs import evaluate_encoded
    from diptych.report.run_report import write_phrase_report, write_report
    from diptych.report.sections.hard_negatives import hard_negatives_section
    from diptych.training.recipe_loader import trained_on_phrases

    part = corpus.split("val")
    if trained_on_phrases(run):
        found = find_phrases(run, trained, part, "val", workers)
        write_phrase_report(run, found, part, "val")
        return found.metrics
    encoded = _encode(run, trained, part, "val", workers)
    result = evaluate_encoded([encoded], average_precision=average_precision_applies(encoded.image_groups))
    negatives = hard_negatives_section(run, trained, corpus)
    write_report(run, encoded, result, "val", hard_negatives=negatives, stores=trained.stores)
    return result.metrics.to_json()


def find_phrases(run: Path, trained: Trained, corpus: Corpus, split: str, workers: int) -> GroundingResult:
    """How well a run finds the phrases of a split."""
    from diptych.evaluation.localisation.localise import evaluate_phrases

    with progress_bar(f"finding phrases of {split} with {run.name}") as progress:
        found = evaluate_phrases(trained, corpus, split, workers=workers, progress=progress)
    print_skipped(found.skipped)
    return found


def train_and_measure(
    runs: Mapping[str, Recipe],
    corpus: Corpus,
    into: Path,
    splits: set[str],
    *,
    device: str,
    workers: int | None,
    features: Path,
) -> dict[str, dict[str, dict[str, float]]]:
    """Train what is not trained yet and measure each run on the splits: metrics by run, split and name."""
    from diptych.machine import available_cores
    from diptych.models.trained import Trained
    from diptych.training.sweep import train_each

    if into.exists() and not into.is_dir():
        raise RunError(f"{into}: is a file; name a folder")
    parts = {split: corpus.split(split) for split in sorted({"val", *splits})}
    threads = available_cores() if workers is None else workers
    measured = {}
    try:
        each = train_each(runs, corpus, into, device=device, workers=workers, features=features, watching=_watching)
        for name, folder in each:
            trained = Trained.open(folder, device, stores=features)
            measured[name] = _measure(folder, trained, corpus, parts, splits, threads)
    except KeyboardInterrupt:
        print_note(f"stopped; go on with the same command (folder {into})")
        raise
    return measured


@contextmanager
def _watching(title: str) -> Iterator[Watcher]:
    """A bar for each training, below a line that says which one it is."""
    from diptych.training.engine.callbacks import Bar

    print_note(title)
    with Bar(stderr) as watcher:
        yield watcher


def _measure(
    run: Path, trained: Trained, corpus: Corpus, parts: Mapping[str, Corpus], splits: set[str], workers: int
) -> dict[str, dict[str, float]]:
    """The metrics of each split, all of it at once; a run without a report gets its report on the way."""
    from diptych.training.recipe_loader import trained_on_phrases

    metrics = {} if (run / "report.html").exists() else {"val": report_on_val(run, trained, corpus, workers)}
    for split in sorted(splits - metrics.keys()):
        if trained_on_phrases(run):
            metrics[split] = find_phrases(run, trained, parts[split], split, workers).metrics
        else:
            metrics[split] = _metrics(_encode(run, trained, parts[split], split, workers))
    return metrics


def _metrics(encoded: Encoded) -> dict[str, float]:
    """The metrics that a report on the encodings shows, by name, without intervals."""
    from diptych.evaluation.metrics.average_precision import average_precision_applies, ranks_with_precision
    from diptych.evaluation.metrics.recall import metrics_from_ranks
    from diptych.evaluation.runs import encoded_score, validation_metrics

    if not average_precision_applies(encoded.image_groups):
        return validation_metrics(encoded)
    return metrics_from_ranks(
        ranks_with_precision(encoded_score(encoded), encoded.image_groups, encoded.text_groups)
    ).to_json()


def _encode(run: Path, trained: Trained, part: Corpus, split: str, workers: int) -> Encoded:
    with progress_bar(f"encoding {split} with {run.name}") as progress:
        encoded = trained.encode(part, workers, progress)
    print_skipped(encoded.skipped)
    return encoded
