"""The difference of two recipes that were each trained with several seeds: one interval over queries, one over seeds.

    d_s      the difference in a metric for seed s        d = mean over s of d_s
    queries  percentiles of d over draws of groups; a draw takes the same groups for every seed and both recipes
    seeds    d +- t(n - 1) std(d_s) / sqrt(n), Student's interval of the n differences

The first interval says whether other queries would change the answer, the second whether other seeds would. With few
seeds the second is wide, as it has to be: three runs say little about a fourth one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import ScoreError
from diptych.evaluation.metrics.significance import check_bootstrap

Interval = tuple[float, float]

_LARGEST_T = 1e9  # beyond Student's quantile for one degree of freedom at any level that a float can tell from 1


@dataclass(frozen=True)
class PooledDifference:
    """The mean difference over seeds, with its two intervals; None for an interval that could not be computed.

    A metric that is not a mean over queries, such as a time, has no interval over queries; one seed has none over
    seeds.
    """

    value: float
    by_seed: tuple[float, ...]
    over_queries: Interval | None
    over_seeds: Interval | None

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """The intervals that could be computed."""
        return tuple(each for each in (self.over_queries, self.over_seeds) if each is not None)

    @property
    def is_significant(self) -> bool:
        """Whether there is an interval, and none of them contains 0."""
        return bool(self.intervals) and all(low > 0 or high < 0 for low, high in self.intervals)

    def to_json(self) -> dict[str, Any]:
        """Everything under stable names; `found` says whether the difference is significant."""
        return {
            "value": self.value,
            "by_seed": list(self.by_seed),
            "over_queries": self.over_queries and list(self.over_queries),
            "over_seeds": self.over_seeds and list(self.over_seeds),
            "found": self.is_significant,
        }


def pool_differences(
    by_seed: Sequence[float], drawn: Sequence[NDArray[np.float64]] | None, *, level: float = 0.95
) -> PooledDifference:
    """Pool the differences of several seeds; `drawn` are those of each seed in each draw of groups, (draws,) each.

    >>> pooled = pool_differences([1.0, 2.0, 3.0], [np.array([0.0, 2.0]), np.array([1.0, 3.0]), np.array([2.0, 4.0])])
    >>> pooled.value, [round(bound, 2) for bound in pooled.over_seeds]
    (2.0, [-0.48, 4.48])
    """
    check_bootstrap(level, 1)
    if not by_seed or (drawn is not None and len(drawn) != len(by_seed)):
        raise ScoreError("a pooled difference needs at least one seed, and the draws of every seed")
    return PooledDifference(
        value=statistics.fmean(by_seed),
        by_seed=tuple(by_seed),
        over_queries=None if drawn is None else _percentiles(np.mean(drawn, axis=0), level),
        over_seeds=student_interval(by_seed, level),
    )


def student_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Student's interval of the mean of independent values; None for a single one."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = student_quantile(level, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def student_quantile(level: float, freedom: int) -> float:
    """The t for which Student's distribution with so many degrees of freedom has the share `level` in [-t, t].

    >>> round(student_quantile(0.95, 2), 3), round(student_quantile(0.95, 4), 3)
    (4.303, 2.776)
    """
    low, high = 0.0, 1.0
    while _central_share(high, freedom) < level and high < _LARGEST_T:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_share(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def _central_share(t: float, freedom: int) -> float:
    """The share of Student's distribution in [-t, t] (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for number in range(freedom // 2):
        total += term
        term *= math.cos(angle) ** 2 * (2 * number + 1 + odd) / (2 * number + 2 + odd)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def _percentiles(drawn: NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
