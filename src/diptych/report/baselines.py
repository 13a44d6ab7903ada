"""A run beside its baselines, on the same images and texts: what it started from, the starter, and the paper.

What a run started from says what training has changed; for a pretrained model, that is its zero-shot result. The
starter, the model that comes with Diptych, is what somebody would use who trains nothing. Below stand the published
figures of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from diptych.data.corpus import Corpus
from diptych.data.scenes.drawing import ScenePicture
from diptych.errors import DiptychError
from diptych.evaluation.metrics.average_precision import average_precision_applies
from diptych.evaluation.metrics.paired_difference import PairedDifferences, paired_difference
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import Encoded, encode_together, evaluate_encoded
from diptych.model import Model
from diptych.models.address import STARTER, ModelFiles, address_name
from diptych.progress import ProgressDisplay, no_progress
from diptych.ranks import ALONE, Ranks
from diptych.training.recipe import Row
from diptych.training.recipe_loader import paper_of_run, start_of_run

Role = Literal["start", "starter"]


@dataclass(frozen=True, eq=False)
class Baseline:
    """A model to compare a run with, and why: it is what the run started from, the starter, or both."""

    model: Model
    roles: tuple[Role, ...]

    @property
    def name(self) -> str:
        """The name of the model."""
        return address_name(self.model.address)


@dataclass(frozen=True, eq=False)
class MeasuredBaseline:
    """The result of a baseline, and the run minus the baseline."""

    name: str
    roles: tuple[Role, ...]
    result: RetrievalResult
    difference: PairedDifferences

    def to_json(self) -> dict[str, Any]:
        """The name, the metrics with their intervals, and the difference."""
        return {
            "name": self.name,
            "metrics": self.result.metrics.to_json(),
            "intervals": self.result.intervals.to_json(),
            "difference": self.difference.to_json(),
        }


@dataclass(frozen=True, eq=False)
class BaselineComparison:
    """A run's result and its baselines.

    `published` are the rows of the paper that the run's recipe follows, by their labels.
    """

    name: str
    result: RetrievalResult
    baselines: tuple[MeasuredBaseline, ...]
    published: dict[str, Row]

    def to_json(self) -> dict[str, Any]:
        """`start`, `starter` and `paper`, as far as there are any, under stable names."""
        content: dict[str, Any] = {role: each.to_json() for each in self.baselines for role in each.roles}
        if self.published:
            rows = self.published.values()
            content["paper"] = [row.model_dump(mode="json", exclude_none=True) for row in rows]
        return content


def open_baselines(
    run: Path | str, device: str = "auto", features: Path | None = None, report: Callable[[str], None] = lambda _: None
) -> list[Baseline]:
    """The model that a run started from, if any, and the starter; `report` is told why a start cannot be opened."""
    starter = Model.load(STARTER, device, stores=features)
    address = start_of_run(Path(run))
    if address is None:
        return [Baseline(starter, ("starter",))]
    try:
        start = Model.load(address, device, stores=features)
        is_starter = start.identity == starter.identity
    except DiptychError as reason:
        report(f"not compared with what {Path(run).name} started from: {reason}")
        return [Baseline(starter, ("starter",))]
    if is_starter:
        return [Baseline(starter, ("start", "starter"))]
    return [Baseline(start, ("start",)), Baseline(starter, ("starter",))]


def compare_with_baselines(
    run: Path | str,
    encoded: Encoded,
    result: RetrievalResult,
    baselines: Sequence[Baseline],
    *,
    gallery: int | None = None,
    workers: int = 2,
    progress: ProgressDisplay = no_progress,
    ranks: Ranks = ALONE,
) -> BaselineComparison | None:
    """Compare a run's result, measured on `encoded`, with its baselines' on the same images and texts.

    `gallery` is that of the result, and `ranks` are those that have measured it. The starter is left out where it says
    nothing: on features, drawn scenes, person search and the starter itself. Returns None if there is nothing to
    compare with, as for encodings without a corpus.
    """
    corpus = encoded.corpus
    if corpus is None:
        return None
    published = {} if _is_drawn(corpus) else published_figures(Path(run))
    measured = []
    for baseline in baselines:
        if baseline.roles == ("starter",) and not _starter_applies(baseline.model, run, corpus):
            continue
        with progress(f"encoding with {baseline.name}, to compare (--no-starter skips it)") as report:
            by_baseline = encode_together(baseline.model, corpus, workers, report, ranks)
        found = evaluate_encoded([by_baseline], folds=len(result.folds), gallery=gallery, average_precision=False)
        difference = paired_difference(found.folds, result.folds)
        measured.append(MeasuredBaseline(baseline.name, baseline.roles, found, difference))
    if not measured and not published:
        return None
    return BaselineComparison(Path(run).name, result, tuple(measured), published)


def published_figures(run: Path) -> dict[str, Row]:
    """The rows of retrieval that the recipe of a run follows, by paper, table and data."""
    paper = paper_of_run(run)
    if paper is None:
        return {}
    rows = (row for row in paper.row if row.i2t is not None or row.t2i is not None)
    return {f"{row.reference or paper.reference}, Table {row.number}, {row.data}": row for row in rows}


def _starter_applies(starter: Model, run: Path | str, corpus: Corpus) -> bool:
    if corpus.features is not None or _is_drawn(corpus) or average_precision_applies(corpus.image_groups):
        return False
    return ModelFiles.find(run).identity() != starter.identity


def _is_drawn(corpus: Corpus) -> bool:
    return any(isinstance(picture, ScenePicture) for picture in (corpus.pictures or ())[:1])
