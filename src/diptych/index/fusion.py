"""Reciprocal rank fusion: one ranking from several, by the sum of 1 / (60 + rank) of each item."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diptych.data.corpus import Floats, Integers

SMOOTHING = 60  # of Cormack, Clarke and Büttcher (2009)


def fuse(rankings: Sequence[Integers]) -> tuple[Integers, Floats]:
    """The items of all rankings, best first, and their sums; ranks begin with 1, and ties are in ascending order."""
    items = np.unique(np.concatenate([np.zeros(0, np.int64), *rankings]))
    sums = np.zeros(len(items))
    for ranking in rankings:
        sums[np.searchsorted(items, ranking)] += 1 / (SMOOTHING + np.arange(1, len(ranking) + 1))
    order = np.lexsort((items, -sums))
    return items[order], sums[order].astype(np.float32)
