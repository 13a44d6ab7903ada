"""Bootstrap confidence intervals that resample groups: captions of one image are not independent of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.evaluation.ranks import Ranks
from diptych.evaluation.recall import CUTOFFS, DIRECTIONS

DRAWS = 1000
LEVEL = 0.95
_AT_ONCE = 2**24  # entries of the table of weights that is held at a time


@dataclass(frozen=True)
class Interval:
    """The lower and the upper end of a confidence interval."""

    low: float
    high: float


def bootstrap(folds: Sequence[Ranks], *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> dict[str, Interval]:
    """Percentile intervals of the recalls and rsum, by metric name.

    Each draw takes as many groups as there are, with replacement, and all queries of a drawn group in both directions;
    with several folds, each is drawn from by itself and the means over folds are taken.
    """
    random = np.random.default_rng(seed)
    samples: dict[str, NDArray[np.float64]] = {}
    for ranks in folds:
        for name, values in _draw(ranks, draws, random).items():
            samples[name] = samples.get(name, np.zeros(draws)) + values / len(folds)
    samples["rsum"] = np.sum(list(samples.values()), axis=0)
    tail = 100 * (1 - level) / 2
    return {
        name: Interval(*(float(end) for end in np.percentile(values, (tail, 100 - tail))))
        for name, values in samples.items()
    }


def _draw(ranks: Ranks, draws: int, random: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """The recalls of each draw, (draws,) by name."""
    groups = np.unique(ranks.image_groups)
    table = np.concatenate(
        [_group_sums(groups, ranks.image_groups, ranks.images), _group_sums(groups, ranks.text_groups, ranks.texts)],
        axis=1,
    )  # (groups, 2 x (queries, hits at each cutoff))
    sums = np.empty((draws, table.shape[1]))
    step = max(1, _AT_ONCE // len(groups))
    for start in range(0, draws, step):
        count = min(step, draws - start)
        weights = random.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=count)
        sums[start : start + count] = weights @ table
    width = 1 + len(CUTOFFS)
    return {
        f"{direction}_r{k}": 100 * sums[:, side * width + 1 + place] / sums[:, side * width]
        for side, direction in enumerate(DIRECTIONS)
        for place, k in enumerate(CUTOFFS)
    }


def _group_sums(groups: Integers, query_groups: Integers, ranks: Integers) -> NDArray[np.float64]:
    """How many queries each group has, and how many of them are right at each cutoff: (groups, 1 + cutoffs)."""
    columns = [np.ones(len(ranks)), *(ranks <= k for k in CUTOFFS)]
    places = np.searchsorted(groups, query_groups)
    return np.stack([np.bincount(places, column, len(groups)) for column in columns], axis=1)
