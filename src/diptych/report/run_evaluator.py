"""Measure trained runs on the splits of a corpus and write their reports, as `diptych train` and `diptych sweep` do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.errors import DataError, RunError
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.metrics.average_precision import average_precision_applies, ranks_with_precision
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import encoded_score, evaluate_encoded, validation_metrics
from diptych.model import Model
from diptych.models.calibration.calibrate import calibrate
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressDisplay, no_progress
from diptych.report.baselines import Baseline, BaselineComparison, compare_with_baselines
from diptych.report.run_report import REPORT, write_phrase_report, write_report
from diptych.report.sections.hard_negatives import hard_negatives_section
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import trained_on_phrases
from diptych.training.sweep import CallbackFactory, train_runs


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """What a report shows: the metrics by name and, for retrieval, the encodings and the result."""

    metrics: dict[str, float]
    encoded: EncodedCorpus | None = None
    result: RetrievalResult | None = None


@dataclass(frozen=True)
class RunEvaluator:
    """Measures runs on a corpus; a run that was trained on phrases is measured by phrase localisation.

    `workers` threads read images. `on_skipped` receives the images that could not be read, with the reasons.
    """

    corpus: Corpus
    workers: int = 0
    progress: ProgressDisplay = no_progress
    on_skipped: Callable[[dict[str, str]], None] | None = None

    def write_report(self, run: Path, model: Model, split: str = "val") -> ReportedRun:
        """Measure a run on a split, write its report, calibrate it if it can be, and return what was measured."""
        part = self.corpus.split(split)
        if trained_on_phrases(run):
            found = self._localise(run, model, part, split)
            write_phrase_report(run, found, part, split)
            return ReportedRun(found.metrics)
        encoded = self._encode(run, model, part, split)
        result = evaluate_encoded([encoded])
        with suppress(DataError):  # too few photos, or a model without a calibration: searches say so
            calibrate(model.engine, model.identity, encoded, run)
        negatives = hard_negatives_section(run, model, self.corpus)
        write_report(run, encoded, result, split, hard_negatives=negatives, stores=model.stores)
        return ReportedRun(result.metrics.to_json(), encoded, result)

    def compare_with_baselines(
        self, run: Path, reported: ReportedRun, baselines: Sequence[Baseline]
    ) -> BaselineComparison | None:
        """Compare what a report shows with the baselines and the paper; None for phrases."""
        if reported.encoded is None or reported.result is None:
            return None
        return compare_with_baselines(
            run, reported.encoded, reported.result, baselines, workers=self.workers, progress=self.progress
        )

    def metrics(self, run: Path, model: Model, split: str) -> dict[str, float]:
        """The metrics that a report on the split shows, by name; without their intervals, which take time."""
        part = self.corpus.split(split)
        if trained_on_phrases(run):
            return self._localise(run, model, part, split).metrics
        encoded = self._encode(run, model, part, split)
        if not average_precision_applies(encoded.image_groups):
            return validation_metrics(encoded)
        ranks = ranks_with_precision(encoded_score(encoded), encoded.image_groups, encoded.text_groups)
        return metrics_from_ranks(ranks).to_json()

    def _localise(self, run: Path, model: Model, part: Corpus, split: str) -> GroundingResult:
        with self.progress(f"localising phrases of {split} with {run.name}") as progress:
            found = evaluate_phrases(model, part, split, workers=self.workers, progress=progress)
        self._report_skipped(found.skipped)
        return found

    def _encode(self, run: Path, model: Model, part: Corpus, split: str) -> EncodedCorpus:
        with self.progress(f"encoding {split} with {run.name}") as progress:
            encoded = model.encode_corpus(part, self.workers, progress)
        self._report_skipped(encoded.skipped)
        return encoded

    def _report_skipped(self, skipped: dict[str, str]) -> None:
        if self.on_skipped is not None:
            self.on_skipped(skipped)


def train_and_measure(
    runs: Mapping[str, Recipe],
    into: Path,
    splits: Collection[str],
    evaluator: RunEvaluator,
    *,
    device: str = "auto",
    workers: int | None = None,
    features: Path = Path("features"),
    callbacks: CallbackFactory = lambda _title: (),
) -> dict[str, dict[str, dict[str, float]]]:
    """Train the runs that are not finished and measure all: metrics by run, split and name.

    A run without a report gets one, on val.
    """
    if into.exists() and not into.is_dir():
        raise RunError(f"{into}: is a file; name a folder")
    for split in sorted({"val", *splits}):
        evaluator.corpus.split(split)  # raises before the first training if the corpus has no such split
    measured = {}
    trainings = train_runs(
        runs, evaluator.corpus, into, device=device, workers=workers, features=features, callbacks=callbacks
    )
    for name, folder in trainings:
        model = Model.load(folder, device, stores=features)
        has_report = (folder / REPORT).exists()
        metrics = {} if has_report else {"val": evaluator.write_report(folder, model).metrics}
        for split in sorted(set(splits) - metrics.keys()):
            metrics[split] = evaluator.metrics(folder, model, split)
        measured[name] = metrics
    return measured
