"""Retrieval metrics by name: recall@K, median and mean rank, mAP if it was measured, and the sum of the recalls.

recall@K = 100 |{queries with rank <= K}| / |queries|        rsum = sum of all recalls of both directions
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.named import NamedValues
from diptych.evaluation.metrics.ranks import Ranks

CUTOFFS = (1, 5, 10)

# Prefixes of metric names: "i2t_r1" is recall at 1 of images as queries for their texts.
IMAGE_TO_TEXT = "i2t"
TEXT_TO_IMAGE = "t2i"

# The metrics that a snapshot can be chosen by: those of which more is better.
_RECALLS = (f"{prefix}_r{cutoff}" for prefix in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for cutoff in CUTOFFS)
SELECTION_METRICS = (*_RECALLS, "rsum")


def recall_at(ranks: Integers, cutoff: int) -> float:
    """The percentage of queries with a positive among their first `cutoff` answers.

    >>> recall_at(np.array([1, 7, 2, 30]), 5)
    50.0
    """
    return float(np.mean(ranks <= cutoff) * 100)


def check_cutoffs(cutoffs: Sequence[int]) -> None:
    """Raise a ScoreError unless the cutoffs are different positive integers, at least one."""
    valid = isinstance(cutoffs, Iterable) and all(isinstance(k, int | np.integer) and k >= 1 for k in cutoffs)
    if not valid or len(set(cutoffs)) < max(1, len(cutoffs)):
        raise ScoreError(f"cutoffs {cutoffs}; give different integers from 1 on, such as {CUTOFFS}")


def median_rank(ranks: Integers) -> float:
    """The median 1-based rank, rounded down as the field reports it: floor(median(rank - 1)) + 1.

    >>> median_rank(np.array([1, 2, 5, 40]))
    3.0
    """
    return float(np.floor(np.median(ranks - 1)) + 1)


@dataclass(frozen=True)
class DirectionMetrics:
    """Metrics of one direction: recall in percent by cutoff, median and mean of the 1-based ranks.

    `mean_average_precision` is in percent, and None if it was not measured.
    """

    recalls: dict[int, float]
    median: float
    mean: float
    mean_average_precision: float | None = None


@dataclass(frozen=True)
class Metrics(NamedValues[float]):
    """Metrics of both directions, each an attribute by its name.

    >>> ranks = np.array([1, 1, 6, 12])
    >>> metrics = Metrics(direction_metrics(ranks), direction_metrics(ranks, cutoffs=(1, 5)))
    >>> metrics.i2t_r10, metrics.t2i_median, metrics.rsum
    (75.0, 3.0, 275.0)
    """

    image_to_text: DirectionMetrics
    text_to_image: DirectionMetrics

    @property
    def rsum(self) -> float:
        """The sum of all recalls of both directions; six of them with the default cutoffs."""
        return sum(self.image_to_text.recalls.values()) + sum(self.text_to_image.recalls.values())

    def to_json(self) -> dict[str, float]:
        """Every metric under its stable name: i2t_r1, ..., i2t_map, i2t_median, i2t_mean, t2i_r1, ..., rsum."""
        named: dict[str, float] = {}
        for prefix, direction in ((IMAGE_TO_TEXT, self.image_to_text), (TEXT_TO_IMAGE, self.text_to_image)):
            named |= {f"{prefix}_r{cutoff}": recall for cutoff, recall in direction.recalls.items()}
            if direction.mean_average_precision is not None:
                named[f"{prefix}_map"] = direction.mean_average_precision
            named |= {f"{prefix}_median": direction.median, f"{prefix}_mean": direction.mean}
        return named | {"rsum": self.rsum}

    def by_name(self) -> dict[str, float]:
        """Every metric under its stable name."""
        return self.to_json()


def direction_metrics(
    ranks: Integers, cutoffs: Sequence[int] = CUTOFFS, precisions: NDArray[np.float64] | None = None
) -> DirectionMetrics:
    """The metrics of one direction's 1-based ranks, and of its queries' average precisions, if any."""
    recalls = {cutoff: recall_at(ranks, cutoff) for cutoff in cutoffs}
    mean_average_precision = None if precisions is None else float(np.mean(precisions) * 100)
    return DirectionMetrics(recalls, median_rank(ranks), float(np.mean(ranks)), mean_average_precision)


def metrics_from_ranks(ranks: Ranks, cutoffs: Sequence[int] = CUTOFFS) -> Metrics:
    """The metrics of both directions."""
    return Metrics(
        direction_metrics(ranks.images, cutoffs, ranks.image_precisions),
        direction_metrics(ranks.texts, cutoffs, ranks.text_precisions),
    )


def mean_metrics(folds: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over folds, with equal weights."""
    return Metrics(
        _mean_direction([fold.image_to_text for fold in folds]),
        _mean_direction([fold.text_to_image for fold in folds]),
    )


def _mean_direction(folds: Sequence[DirectionMetrics]) -> DirectionMetrics:
    precisions = [fold.mean_average_precision for fold in folds if fold.mean_average_precision is not None]
    return DirectionMetrics(
        {cutoff: float(np.mean([fold.recalls[cutoff] for fold in folds])) for cutoff in folds[0].recalls},
        float(np.mean([fold.median for fold in folds])),
        float(np.mean([fold.mean for fold in folds])),
        float(np.mean(precisions)) if precisions else None,
    )
