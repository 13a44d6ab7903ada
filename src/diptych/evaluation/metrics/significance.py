"""How far chance can move a recall or a mean average precision: bootstrap confidence intervals that resample groups.

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
from diptych.evaluation.metrics.average_precision import Precisions
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE

# Weights (draws, groups) held at once: 4 million are 32 MB.
MAX_WEIGHTS = 1 << 22

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """The interval of each recall, of mAP where it is known, and of the recalls' sum, by name; how they were drawn."""

    bounds: dict[str, tuple[float, float]]
    level: float
    draws: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The bounds by name as [low, high], with level, draws and seed."""
        bounds = {name: list(bound) for name, bound in self.bounds.items()}
        return {"level": self.level, "draws": self.draws, "seed": self.seed, "bounds": bounds}


def bootstrap_intervals(
    folds: Sequence[Ranks],
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Percentile intervals of the recalls, and of mAP where the folds have average precisions.

    Groups are drawn inside each fold, and the folds averaged as ever.
    """
    if not 0 < level < 1 or draws < 1:
        raise ScoreError(f"an interval needs a level between 0 and 1 and some draws, not {level} and {draws}")
    random = np.random.default_rng(seed)
    each = [_redrawn(ranks, _qualities(ranks, cutoffs), draws, random) for ranks in folds]
    drawn = np.mean(each, axis=0)  # (draws, metrics)
    precise = all(isinstance(ranks, Precisions) for ranks in folds)
    measured = [*(f"r{cutoff}" for cutoff in cutoffs), *(["map"] if precise else [])]
    names = [f"{prefix}_{metric}" for prefix in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for metric in measured]
    recalls = drawn[:, [not name.endswith("_map") for name in names]]
    columns = np.column_stack([drawn, recalls.sum(axis=1)])
    lows, highs = np.quantile(columns, [(1 - level) / 2, (1 + level) / 2], axis=0)
    bounds = {name: (float(low), float(high)) for name, low, high in zip([*names, "rsum"], lows, highs, strict=True)}
    return Intervals(bounds, level, draws, seed)


def bootstrap_recalls(
    ranks: Ranks, cutoffs: Sequence[int], draws: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """The recalls of each draw of groups, in percent: the images' in the first columns, then the texts'."""
    return _redrawn(ranks, (_hits(ranks.images, cutoffs), _hits(ranks.texts, cutoffs)), draws, random)


def _hits(ranks: Integers, cutoffs: Sequence[int]) -> _Values:
    """Whether each query has its answer within each cutoff, as 1 or 0."""
    return np.column_stack([ranks <= cutoff for cutoff in cutoffs]).astype(np.float64)  # (queries, cutoffs)


def _qualities(ranks: Ranks, cutoffs: Sequence[int]) -> tuple[_Values, _Values]:
    """What is averaged over the images, and over the texts: hits, and average precisions where they are known."""
    images, texts = _hits(ranks.images, cutoffs), _hits(ranks.texts, cutoffs)
    if isinstance(ranks, Precisions):
        return np.column_stack([images, ranks.image_precisions]), np.column_stack([texts, ranks.text_precisions])
    return images, texts


def _redrawn(ranks: Ranks, values: tuple[_Values, _Values], draws: int, random: np.random.Generator) -> _Values:
    """The means of the images' and of the texts' values in each draw of groups, in percent, side by side."""
    known, image_places = np.unique(ranks.image_groups, return_inverse=True)
    text_places = np.searchsorted(known, ranks.text_groups)
    sides = [_sums(values[0], image_places, len(known)), _sums(values[1], text_places, len(known))]
    means = []
    for weights in _weights(draws, len(known), random):
        drawn = [weights @ side for side in sides]  # (draws, values + 1)
        means.append(np.hstack([side[:, :-1] / side[:, -1:] for side in drawn]) * 100)
    return np.vstack(means)  # (draws, 2 values)


def _sums(values: _Values, places: Integers, groups: int) -> _Values:
    """The values of each group's queries, added up, and in the last column the number of its queries."""
    sums = [np.bincount(places, weights=column, minlength=groups) for column in values.T]
    return np.column_stack([*sums, np.bincount(places, minlength=groups)])  # (groups, values + 1)


def _weights(draws: int, groups: int, random: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each group was taken in each draw, as many draws at a time as fit."""
    most = max(1, MAX_WEIGHTS // groups)
    for start in range(0, draws, most):
        count = min(most, draws - start)
        taken = random.integers(groups, size=(count, groups)) + groups * np.arange(count)[:, None]
        yield np.bincount(taken.ravel(), minlength=count * groups).reshape(count, groups).astype(np.float64)
