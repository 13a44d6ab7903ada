"""Reciprocal rank fusion: one ranking from several, by the sum of weight / (10 + rank) of each item.

Cormack, Clarke and Büttcher (2009) have 60 in place of 10, and no weights. Without weights, an image that has no
caption ranks below every image whose captions share a word with the query (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diptych.data.corpus import Floats, Integers

SMOOTHING = 10

WeightedRanking = tuple[Integers, Floats]  # items, best first, and the weight of each


def fuse(rankings: Sequence[WeightedRanking]) -> tuple[Integers, Floats]:
    """The items of all rankings, best first, and their sums; ranks begin with 1, and ties are in ascending order."""
    items = np.unique(np.concatenate([np.zeros(0, np.int64), *(ranking for ranking, _ in rankings)]))
    sums = np.zeros(len(items))
    for ranking, weights in rankings:
        sums[np.searchsorted(items, ranking)] += weights / (SMOOTHING + np.arange(1, len(ranking) + 1))
    order = np.lexsort((items, -sums))
    return items[order], sums[order].astype(np.float32)
