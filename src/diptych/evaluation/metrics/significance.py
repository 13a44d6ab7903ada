"""Bootstrap confidence intervals of recall and mAP that resample groups.

The captions of one image succeed and fail together, so queries are not drawn one by one: each draw takes whole groups
with replacement, and with them all their images and texts. Both directions and their sum share the draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.named import NamedValues
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE

# Weights (draws, groups) at once: 2 MB, which stay in the cache; 32 MB take nearly twice the time.
MAX_WEIGHTS = 1 << 18

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Intervals(NamedValues[tuple[float, float]]):
    """The (low, high) bounds of each metric, an attribute by its name, with level, number and seed of the draws."""

    bounds: dict[str, tuple[float, float]]
    level: float
    draws: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The bounds by name as [low, high], with level, draws and seed."""
        bounds = {name: list(bound) for name, bound in self.bounds.items()}
        return {"level": self.level, "draws": self.draws, "seed": self.seed, "bounds": bounds}

    def by_name(self) -> dict[str, tuple[float, float]]:
        """The bounds under the names of their metrics."""
        return self.bounds


def bootstrap_intervals(
    folds: Sequence[Ranks],
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Percentile intervals of the recalls, of their sum, and of mAP if the folds have average precisions.

    Groups are drawn within each fold, and the folds of a draw are averaged.
    """
    check_bootstrap(level, draws, seed)
    drawn = draw_metrics(folds, cutoffs, draws, seed)
    bounds = percentile_bounds(list(drawn), np.column_stack(list(drawn.values())), level)
    return Intervals(bounds, level, draws, seed)


def draw_metrics(folds: Sequence[Ranks], cutoffs: Sequence[int], draws: int, seed: int) -> dict[str, _Values]:
    """The values of each metric by name in each draw of groups: (draws,).

    The draws depend only on the seed and the groups, so that draw n of two models takes the same groups.
    """
    random = np.random.default_rng(seed)
    per_fold = [_group_means(ranks, _values(ranks, cutoffs), draws, random) for ranks in folds]
    drawn = np.mean(per_fold, axis=0)  # (draws, metrics)
    has_precision = all(ranks.image_precisions is not None for ranks in folds)
    metrics = [*(f"r{cutoff}" for cutoff in cutoffs), *(["map"] if has_precision else [])]
    names = [f"{prefix}_{metric}" for prefix in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for metric in metrics]
    recalls = drawn[:, [not name.endswith("_map") for name in names]]
    return dict(zip(names, drawn.T, strict=True)) | {"rsum": recalls.sum(axis=1)}


def check_bootstrap(level: float, draws: int, seed: int = 0) -> None:
    """Raise a ScoreError unless the level lies between 0 and 1, there is at least one draw, and the seed is valid."""
    if seed < 0:
        raise ScoreError(f"seed {seed}; give an integer from 0 on")
    if not 0 < level < 1 or draws < 1:
        raise ScoreError(f"an interval needs a level between 0 and 1 and at least one draw, not {level} and {draws}")


def percentile_bounds(names: Sequence[str], drawn: _Values, level: float) -> dict[str, tuple[float, float]]:
    """The central interval of each column of (draws, metrics) values, by name.

    >>> percentile_bounds(["r1"], np.arange(101.0)[:, None], 0.5)
    {'r1': (25.0, 75.0)}
    """
    lows, highs = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {name: (float(low), float(high)) for name, low, high in zip(names, lows, highs, strict=True)}


def bootstrap_recalls(ranks: Ranks, cutoffs: Sequence[int], draws: int, random: np.random.Generator) -> _Values:
    """The recalls in percent of each draw of groups, (draws, 2 cutoffs): those of the images, then of the texts."""
    return _group_means(ranks, (_hits(ranks.images, cutoffs), _hits(ranks.texts, cutoffs)), draws, random)


def _hits(ranks: Integers, cutoffs: Sequence[int]) -> _Values:
    """1 for each query with a positive within each cutoff, otherwise 0."""
    return np.column_stack([ranks <= cutoff for cutoff in cutoffs]).astype(np.float64)  # (queries, cutoffs)


def _values(ranks: Ranks, cutoffs: Sequence[int]) -> tuple[_Values, _Values]:
    """What is averaged over the images and over the texts: hits, and average precisions if there are any."""
    images, texts = _hits(ranks.images, cutoffs), _hits(ranks.texts, cutoffs)
    if ranks.image_precisions is None or ranks.text_precisions is None:
        return images, texts
    return np.column_stack([images, ranks.image_precisions]), np.column_stack([texts, ranks.text_precisions])


def _group_means(ranks: Ranks, values: tuple[_Values, _Values], draws: int, random: np.random.Generator) -> _Values:
    """The means of the images' and of the texts' values in each draw of groups, in percent, side by side."""
    return 100 * group_means(values, (ranks.image_groups, ranks.text_groups), draws, random)


def group_means(
    tables: Sequence[_Values], groups: Sequence[Integers], draws: int, random: np.random.Generator
) -> _Values:
    """The mean of each column of some (queries, values) tables in each draw of groups: (draws, all values).

    `groups` has the group of each query of each table; a draw takes all queries of its groups, from all tables.
    """
    names = np.unique(np.concatenate(groups))
    numbers = [np.searchsorted(names, each) for each in groups]
    sums = [_sums_per_group(*table, len(names)) for table in zip(tables, numbers, strict=True)]
    means = []
    for weights in draw_weights(draws, len(names), random):
        drawn = [weights @ table for table in sums]  # (draws, values + 1)
        means.append(np.hstack([table[:, :-1] / table[:, -1:] for table in drawn]))
    return np.vstack(means)


def _sums_per_group(values: _Values, numbers: Integers, groups: int) -> _Values:
    """The sums of the values of each group's queries and, in the last column, the number of its queries."""
    sums = [np.bincount(numbers, weights=column, minlength=groups) for column in values.T]
    return np.column_stack([*sums, np.bincount(numbers, minlength=groups)])  # (groups, values + 1)


def draw_weights(draws: int, groups: int, random: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each draw takes each group, (some draws, groups), as many draws at a time as fit in memory."""
    most = max(1, MAX_WEIGHTS // groups)
    for start in range(0, draws, most):
        count = min(most, draws - start)
        taken = random.integers(groups, size=(count, groups)) + groups * np.arange(count)[:, None]
        yield np.bincount(taken.ravel(), minlength=count * groups).reshape(count, groups).astype(np.float64)
