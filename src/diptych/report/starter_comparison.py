"""A run against the starter, the model that comes with Diptych, on the same images and texts, and against the paper.

The starter is what somebody would use who trains nothing. Below its row stand the published figures of the recipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.data.corpus import Corpus
from diptych.data.scenes.drawing import ScenePicture
from diptych.evaluation.metrics.average_precision import average_precision_applies
from diptych.evaluation.metrics.paired_difference import PairedDifferences, paired_difference
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import evaluate_encoded
from diptych.model import Model
from diptych.models.address import STARTER, ModelFiles
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressDisplay, no_progress
from diptych.training.recipe import Row
from diptych.training.recipe_loader import paper_of_run


@dataclass(frozen=True, eq=False)
class StarterComparison:
    """A run's result, the starter's (None if it was not measured) and the run minus the starter.

    `published` are the rows of the paper that the run's recipe follows, by their labels.
    """

    name: str
    result: RetrievalResult
    starter: RetrievalResult | None
    difference: PairedDifferences | None
    published: dict[str, Row]

    def to_json(self) -> dict[str, Any]:
        """`starter` and `paper`, as far as there are any, under stable names."""
        content: dict[str, Any] = {}
        if self.starter is not None and self.difference is not None:
            content["starter"] = {
                "metrics": self.starter.metrics.to_json(),
                "intervals": self.starter.intervals.to_json(),
                "difference": self.difference.to_json(),
            }
        if self.published:
            rows = self.published.values()
            content["paper"] = [row.model_dump(mode="json", exclude_none=True) for row in rows]
        return content


def compare_with_starter(
    run: Path | str,
    encoded: EncodedCorpus,
    result: RetrievalResult,
    starter: Model | None,
    *,
    gallery: int | None = None,
    workers: int = 2,
    progress: ProgressDisplay = no_progress,
) -> StarterComparison | None:
    """Compare a run's result, measured on `encoded`, with the starter's on the same images and texts.

    `starter` is the opened starter, or None to compare with the published figures only; `gallery` is that of the
    result. The starter is not measured where it says nothing: on encodings without pictures, drawn scenes, person
    search and the starter itself. Returns None if there is nothing to compare with.
    """
    corpus = encoded.corpus
    if corpus is None or _is_drawn(corpus):
        return None
    published = published_figures(Path(run))
    if starter is None or not _starter_applies(starter, run, corpus):
        return StarterComparison(Path(run).name, result, None, None, published) if published else None
    with progress(f"encoding with the {STARTER}, to compare (--no-starter skips it)") as report:
        by_starter = starter.encode_corpus(corpus, workers, report)
    measured = evaluate_encoded([by_starter], folds=len(result.folds), gallery=gallery, average_precision=False)
    difference = paired_difference(measured.folds, result.folds)
    return StarterComparison(Path(run).name, result, measured, difference, published)


def published_figures(run: Path) -> dict[str, Row]:
    """The rows of retrieval that the recipe of a run follows, by paper, table and data."""
    paper = paper_of_run(run)
    if paper is None:
        return {}
    rows = (row for row in paper.row if row.i2t is not None or row.t2i is not None)
    return {f"{row.reference or paper.reference}, Table {row.number}, {row.data}": row for row in rows}


def _starter_applies(starter: Model, run: Path | str, corpus: Corpus) -> bool:
    if corpus.features is not None or average_precision_applies(corpus.image_groups):
        return False
    return ModelFiles.find(run).identity() != starter.identity


def _is_drawn(corpus: Corpus) -> bool:
    return any(isinstance(picture, ScenePicture) for picture in (corpus.pictures or ())[:1])
