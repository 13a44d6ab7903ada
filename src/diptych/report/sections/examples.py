"""Choosing what to show: several queries of one group would say the same thing twice."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Integers


def one_a_group(rows: Integers, groups: Integers, count: int) -> list[int]:
    """The first rows, in their order, that belong to different groups.

    >>> one_a_group(np.array([4, 1, 3, 0]), np.array([7, 8, 7, 8, 9]), 2)
    [4, 1]
    """
    first = np.unique(groups[rows], return_index=True)[1]
    return [int(rows[place]) for place in np.sort(first)[:count]]
