"""How far chance can move a recall: bootstrap confidence intervals that resample groups.

The captions of one image succeed and fail together, so queries are not drawn one by one: a draw takes whole groups
with replacement, and with them all their images and texts. Both directions share a draw, and so does their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.ranks import Ranks
from diptych.evaluation.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE

# Weights (draws, groups) held at once: 4 million are 32 MB.
WEIGHTS = 1 << 22


@dataclass(frozen=True)
class Intervals:
    """The interval of each recall and of their sum, by the metric's name, and how they were drawn."""

    bounds: dict[str, tuple[float, float]]
    level: float
    draws: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The bounds by name as [low, high], with level, draws and seed."""
        bounds = {name: list(bound) for name, bound in self.bounds.items()}
        return {"level": self.level, "draws": self.draws, "seed": self.seed, "bounds": bounds}


def intervals(
    folds: Sequence[Ranks],
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Percentile intervals of the recalls; groups are drawn inside each fold, and the folds averaged as ever."""
    if not 0 < level < 1 or draws < 1:
        raise ScoreError(f"an interval needs a level between 0 and 1 and some draws, not {level} and {draws}")
    random = np.random.default_rng(seed)
    recalls = np.mean([redrawn(ranks, cutoffs, draws, random) for ranks in folds], axis=0)  # (draws, recalls)
    names = [f"{prefix}_r{cutoff}" for prefix in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for cutoff in cutoffs]
    columns = np.column_stack([recalls, recalls.sum(axis=1)])
    lows, highs = np.quantile(columns, [(1 - level) / 2, (1 + level) / 2], axis=0)
    bounds = {name: (float(low), float(high)) for name, low, high in zip([*names, "rsum"], lows, highs, strict=True)}
    return Intervals(bounds, level, draws, seed)


def redrawn(ranks: Ranks, cutoffs: Sequence[int], draws: int, random: np.random.Generator) -> NDArray[np.float64]:
    """The recalls of each draw of groups, in percent: the images' in the first columns, then the texts'."""
    known, image_places = np.unique(ranks.image_groups, return_inverse=True)
    text_places = np.searchsorted(known, ranks.text_groups)
    sides = [
        _sums(ranks.images, image_places, len(known), cutoffs),
        _sums(ranks.texts, text_places, len(known), cutoffs),
    ]
    recalls = []
    for weights in _weights(draws, len(known), random):
        drawn = [weights @ side for side in sides]  # (draws, cutoffs + 1)
        recalls.append(np.hstack([side[:, :-1] / side[:, -1:] for side in drawn]) * 100)
    return np.vstack(recalls)  # (draws, 2 cutoffs)


def _sums(ranks: Integers, places: Integers, groups: int, cutoffs: Sequence[int]) -> NDArray[np.float64]:
    """The queries of each group that have their answer within each cutoff, and in the last column all of them."""
    hits = [np.bincount(places, weights=ranks <= cutoff, minlength=groups) for cutoff in cutoffs]
    return np.column_stack([*hits, np.bincount(places, minlength=groups)])  # (groups, cutoffs + 1)


def _weights(draws: int, groups: int, random: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each group was taken in each draw, as many draws at a time as fit."""
    most = max(1, WEIGHTS // groups)
    for start in range(0, draws, most):
        count = min(most, draws - start)
        taken = random.integers(groups, size=(count, groups)) + groups * np.arange(count)[:, None]
        yield np.bincount(taken.ravel(), minlength=count * groups).reshape(count, groups).astype(np.float64)
