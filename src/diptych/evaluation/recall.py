"""Metrics of ranks, by name: recall at K, median rank and mean rank in both directions, and the sum of recalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diptych.data.corpus import Integers
from diptych.evaluation.ranks import Ranks

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
class Direction:
    """How well the queries of one side find their answers: recall in percent by cutoff, and ranks from 1 on."""

    recalls: dict[int, float]
    median: float
    mean: float


@dataclass(frozen=True)
class Metrics:
    """Both directions of retrieval.

    >>> ranks = np.array([1, 1, 6, 12])
    >>> metrics = Metrics(direction(ranks), direction(ranks, cutoffs=(1, 5)))
    >>> metrics.to_json()["i2t_r10"], metrics.to_json()["t2i_median"], metrics.rsum
    (75.0, 3.0, 275.0)
    """

    image_to_text: Direction
    text_to_image: Direction

    @property
    def rsum(self) -> float:
        """The sum of all recalls of both directions; six of them at the usual cutoffs."""
        return sum(self.image_to_text.recalls.values()) + sum(self.text_to_image.recalls.values())

    def to_json(self) -> dict[str, float]:
        """Every metric under its lasting name: i2t_r1, ..., i2t_median, i2t_mean, t2i_r1, ..., rsum."""
        named: dict[str, float] = {}
        for prefix, side in ((IMAGE_TO_TEXT, self.image_to_text), (TEXT_TO_IMAGE, self.text_to_image)):
            named |= {f"{prefix}_r{cutoff}": recall for cutoff, recall in side.recalls.items()}
            named |= {f"{prefix}_median": side.median, f"{prefix}_mean": side.mean}
        return named | {"rsum": self.rsum}


def direction(ranks: Integers, cutoffs: Sequence[int] = CUTOFFS) -> Direction:
    """Measure the 1-based ranks of one direction's queries."""
    recalls = {cutoff: recall_at(ranks, cutoff) for cutoff in cutoffs}
    return Direction(recalls, median_rank(ranks), float(np.mean(ranks)))


def measure(ranks: Ranks, cutoffs: Sequence[int] = CUTOFFS) -> Metrics:
    """Measure both directions."""
    return Metrics(direction(ranks.images, cutoffs), direction(ranks.texts, cutoffs))


def average(metrics: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over folds, every fold weighing the same."""
    return Metrics(
        _average_direction([fold.image_to_text for fold in metrics]),
        _average_direction([fold.text_to_image for fold in metrics]),
    )


def _average_direction(folds: Sequence[Direction]) -> Direction:
    return Direction(
        {cutoff: float(np.mean([fold.recalls[cutoff] for fold in folds])) for cutoff in folds[0].recalls},
        float(np.mean([fold.median for fold in folds])),
        float(np.mean([fold.mean for fold in folds])),
    )
