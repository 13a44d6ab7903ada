"""Recall@K, median and mean rank, and rsum: pure functions of ranks, with names instead of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diptych.data.corpus import Integers
from diptych.evaluation.ranks import Ranks

CUTOFFS = (1, 5, 10)
DIRECTIONS = ("i2t", "t2i")
METRICS = (
    *(f"{direction}_{name}" for direction in DIRECTIONS for name in (*(f"r{k}" for k in CUTOFFS), "median", "mean")),
    "rsum",
)


@dataclass(frozen=True)
class Metrics:
    """Every metric by its name, such as `i2t_r1` (percent), `t2i_median`, `rsum` (the sum of the six recalls)."""

    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def to_json(self) -> dict[str, float]:
        """The metrics by name."""
        return dict(self.values)

    @classmethod
    def of(cls, ranks: Ranks) -> Metrics:
        """The metrics of both directions: images asking for texts (i2t), texts asking for images (t2i)."""
        values = {}
        for direction, found in zip(DIRECTIONS, (ranks.images, ranks.texts), strict=True):
            for k in CUTOFFS:
                values[f"{direction}_r{k}"] = recall(found, k)
            values[f"{direction}_median"] = median_rank(found)
            values[f"{direction}_mean"] = float(found.mean())
        values["rsum"] = sum(values[f"{direction}_r{k}"] for direction in DIRECTIONS for k in CUTOFFS)
        return cls(values)

    @classmethod
    def mean(cls, several: Sequence[Metrics]) -> Metrics:
        """The mean of each metric, as over folds."""
        return cls({name: float(np.mean([metrics[name] for metrics in several])) for name in METRICS})


def recall(ranks: Integers, k: int) -> float:
    """The percentage of queries whose rank is at most k.

    >>> import numpy as np
    >>> recall(np.array([1, 4, 9, 20]), 5)
    50.0
    """
    return 100 * float(np.mean(ranks <= k))


def median_rank(ranks: Integers) -> float:
    """The median rank, rounded down as the field does: floor(median of the ranks from 0) + 1.

    >>> import numpy as np
    >>> median_rank(np.array([1, 2, 3, 9]))
    2.0
    """
    return float(np.floor(np.median(ranks - 1)) + 1)
