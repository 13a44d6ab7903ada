"""Whether one of two models is better: the difference of their metrics on the same queries, with its interval.

Two models fail on the same hard images, so the separate intervals of each say little about their difference. Here both
are measured on every draw of groups, and only the difference varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.errors import ScoreError
from diptych.evaluation.metrics.named import NamedValues
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS, mean_metrics, metrics_from_ranks
from diptych.evaluation.metrics.significance import check_bootstrap, draw_metrics, percentile_bounds


@dataclass(frozen=True)
class Difference:
    """The second model's metric minus the first's, with its interval."""

    value: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0: only then is one of the two known to be better."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class PairedDifferences(NamedValues[Difference]):
    """The difference in each metric, an attribute by its name, with level, number and seed of the draws."""

    differences: dict[str, Difference]
    level: float
    draws: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The differences by name as value, low, high and found (significant), with level, draws and seed."""
        named = {
            name: {"value": each.value, "low": each.low, "high": each.high, "found": each.is_significant}
            for name, each in self.differences.items()
        }
        return {"level": self.level, "draws": self.draws, "seed": self.seed, "differences": named}

    def by_name(self) -> dict[str, Difference]:
        """The differences under the names of their metrics."""
        return self.differences


def paired_difference(
    first: Sequence[Ranks],
    second: Sequence[Ranks],
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> PairedDifferences:
    """The second model minus the first, fold by fold on the same queries, with percentile intervals.

    mAP is compared if it was measured of both.
    """
    check_bootstrap(level, draws, seed)
    if len(first) != len(second) or not all(map(_same_queries, first, second)):
        raise ScoreError("a paired difference needs the ranks of the same images and texts in the same order")
    before, after = (draw_metrics(folds, cutoffs, draws, seed) for folds in (first, second))
    names = [name for name in before if name in after]
    bounds = percentile_bounds(names, np.column_stack([after[name] - before[name] for name in names]), level)
    differences = named_differences(_named_metrics(first, cutoffs), _named_metrics(second, cutoffs), bounds)
    return PairedDifferences(differences, level, draws, seed)


def named_differences(
    first: Mapping[str, float], second: Mapping[str, float], bounds: Mapping[str, tuple[float, float]]
) -> dict[str, Difference]:
    """The differences of the metrics that have bounds, by name."""
    return {name: Difference(second[name] - first[name], *bound) for name, bound in bounds.items()}


def _named_metrics(folds: Sequence[Ranks], cutoffs: Sequence[int]) -> dict[str, float]:
    return mean_metrics([metrics_from_ranks(ranks, cutoffs) for ranks in folds]).to_json()


def _same_queries(first: Ranks, second: Ranks) -> bool:
    return np.array_equal(first.image_groups, second.image_groups) and np.array_equal(
        first.text_groups, second.text_groups
    )
