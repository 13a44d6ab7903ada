"""Whether one of two models is better: the difference of their recalls on the same queries, with its interval.

Two models fail on the same hard images, so the intervals of each say little about their difference. Here every draw of
groups is measured with both, and what varies is the difference alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.errors import ScoreError
from diptych.evaluation.localisation.phrase_metrics import DRAWS, LEVEL, SEED, GroundingResult
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE, mean_metrics, metrics_from_ranks
from diptych.evaluation.metrics.significance import bootstrap_recalls


@dataclass(frozen=True)
class Difference:
    """How far the second model's metric lies above the first's, with the interval of that."""

    value: float
    low: float
    high: float

    @property
    def found(self) -> bool:
        """Whether the interval leaves out 0: only then is one of the two known to be better."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class PairedDifferences:
    """The difference in each metric by its name, such as the recalls and their sum, and how intervals were drawn."""

    differences: dict[str, Difference]
    level: float
    draws: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The differences by name as value, low, high and found, with level, draws and seed."""
        named = {
            name: {"value": each.value, "low": each.low, "high": each.high, "found": each.found}
            for name, each in self.differences.items()
        }
        return {"level": self.level, "draws": self.draws, "seed": self.seed, "differences": named}


def paired_difference(
    first: Sequence[Ranks],
    second: Sequence[Ranks],
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> PairedDifferences:
    """Second minus first, fold by fold of the same queries; percentile intervals over shared draws of groups."""
    if not 0 < level < 1 or draws < 1:
        raise ScoreError(f"an interval needs a level between 0 and 1 and some draws, not {level} and {draws}")
    if len(first) != len(second) or not all(map(_same_queries, first, second)):
        raise ScoreError("a paired difference needs the ranks of the same images and texts in the same order")
    # The same seed for both: draw n takes the same groups.
    drawn = []
    for folds in (first, second):
        random = np.random.default_rng(seed)
        drawn.append(np.mean([bootstrap_recalls(ranks, cutoffs, draws, random) for ranks in folds], axis=0))
    differences = drawn[1] - drawn[0]  # (draws, recalls)
    columns = np.column_stack([differences, differences.sum(axis=1)])
    lows, highs = np.quantile(columns, [(1 - level) / 2, (1 + level) / 2], axis=0)
    values = [
        mean_metrics([metrics_from_ranks(ranks, cutoffs) for ranks in folds]).to_json() for folds in (first, second)
    ]
    names = [*(f"{side}_r{cutoff}" for side in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for cutoff in cutoffs), "rsum"]
    named = {
        name: Difference(values[1][name] - values[0][name], float(low), float(high))
        for name, low, high in zip(names, lows, highs, strict=True)
    }
    return PairedDifferences(named, level, draws, seed)


def paired_phrase_difference(first: GroundingResult, second: GroundingResult) -> PairedDifferences:
    """Second minus first in finding the same phrases; percentile intervals over shared draws of photos."""
    if not np.array_equal(first.rows, second.rows) or not np.array_equal(first.images, second.images):
        raise ScoreError("a paired difference needs the ranks of the same phrases in the same order")
    lows, highs = np.quantile(second.drawn - first.drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    named = {
        name: Difference(value - first.metrics[name], float(low), float(high))
        for (name, value), low, high in zip(second.metrics.items(), lows, highs, strict=True)
    }
    return PairedDifferences(named, LEVEL, DRAWS, SEED)


def _same_queries(first: Ranks, second: Ranks) -> bool:
    return np.array_equal(first.image_groups, second.image_groups) and np.array_equal(
        first.text_groups, second.text_groups
    )
