"""Metrics of ranks, by name: recall at K, median and mean rank and, where it is known, mAP; and the sum of recalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.average_precision import Precisions
from diptych.evaluation.metrics.ranks import Ranks

CUTOFFS = (1, 5, 10)

# How the two directions begin a metric's name: "i2t_r1" is recall at 1 of images looking for their texts.
IMAGE_TO_TEXT = "i2t"
TEXT_TO_IMAGE = "t2i"


def recall_at(ranks: Integers, cutoff: int) -> float:
    """The share of queries, in percent, whose right answer is among the first `cutoff`.

    >>> recall_at(np.array([1, 7, 2, 30]), 5)
    50.0
    """
    return float(np.mean(ranks <= cutoff) * 100)


def median_rank(ranks: Integers) -> float:
    """The median 1-based rank, rounded down to a rank, as the field reports it: floor(median(rank - 1)) + 1.

    >>> median_rank(np.array([1, 2, 5, 40]))
    3.0
    """
    return float(np.floor(np.median(ranks - 1)) + 1)


@dataclass(frozen=True)
class DirectionMetrics:
    """How well the queries of one side find their answers: recall in percent by cutoff, and ranks from 1 on.

    `precision` is the mean average precision in percent, where it was measured.
    """

    recalls: dict[int, float]
    median: float
    mean: float
    precision: float | None = None


@dataclass(frozen=True)
class Metrics:
    """Both directions of retrieval.

    >>> ranks = np.array([1, 1, 6, 12])
    >>> metrics = Metrics(direction_metrics(ranks), direction_metrics(ranks, cutoffs=(1, 5)))
    >>> metrics.to_json()["i2t_r10"], metrics.to_json()["t2i_median"], metrics.rsum
    (75.0, 3.0, 275.0)
    """

    image_to_text: DirectionMetrics
    text_to_image: DirectionMetrics

    @property
    def rsum(self) -> float:
        """The sum of all recalls of both directions; six of them at the usual cutoffs."""
        return sum(self.image_to_text.recalls.values()) + sum(self.text_to_image.recalls.values())

    def to_json(self) -> dict[str, float]:
        """Every metric under its lasting name: i2t_r1, ..., i2t_map, i2t_median, i2t_mean, t2i_r1, ..., rsum."""
        named: dict[str, float] = {}
        for prefix, side in ((IMAGE_TO_TEXT, self.image_to_text), (TEXT_TO_IMAGE, self.text_to_image)):
            named |= {f"{prefix}_r{cutoff}": recall for cutoff, recall in side.recalls.items()}
            if side.precision is not None:
                named[f"{prefix}_map"] = side.precision
            named |= {f"{prefix}_median": side.median, f"{prefix}_mean": side.mean}
        return named | {"rsum": self.rsum}


def direction_metrics(
    ranks: Integers, cutoffs: Sequence[int] = CUTOFFS, precisions: NDArray[np.float64] | None = None
) -> DirectionMetrics:
    """Measure the 1-based ranks of one direction's queries, and their average precisions, if they are known."""
    recalls = {cutoff: recall_at(ranks, cutoff) for cutoff in cutoffs}
    precision = None if precisions is None else float(np.mean(precisions) * 100)
    return DirectionMetrics(recalls, median_rank(ranks), float(np.mean(ranks)), precision)


def metrics_from_ranks(ranks: Ranks, cutoffs: Sequence[int] = CUTOFFS) -> Metrics:
    """Measure both directions."""
    known = (ranks.image_precisions, ranks.text_precisions) if isinstance(ranks, Precisions) else (None, None)
    return Metrics(
        direction_metrics(ranks.images, cutoffs, known[0]), direction_metrics(ranks.texts, cutoffs, known[1])
    )


def mean_metrics(metrics: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over folds, every fold weighing the same."""
    return Metrics(
        _average_direction([fold.image_to_text for fold in metrics]),
        _average_direction([fold.text_to_image for fold in metrics]),
    )


def _average_direction(folds: Sequence[DirectionMetrics]) -> DirectionMetrics:
    precisions = [fold.precision for fold in folds if fold.precision is not None]
    return DirectionMetrics(
        {cutoff: float(np.mean([fold.recalls[cutoff] for fold in folds])) for cutoff in folds[0].recalls},
        float(np.mean([fold.median for fold in folds])),
        float(np.mean([fold.mean for fold in folds])),
        float(np.mean(precisions)) if precisions else None,
    )
