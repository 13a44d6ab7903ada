"""Rank correlations of two columns of numbers: Spearman's rho, Kendall's tau-b and tau-c.

    rho    the correlation of the ranks, ties having the mean of theirs
    tau_b  (P - Q) / sqrt((T - T_x) (T - T_y))
    tau_c  2 m (P - Q) / (n^2 (m - 1))

P pairs of rows are in the same order in both columns and Q in opposite orders, of T = n (n - 1) / 2 in all, of which
T_x and T_y are ties of a column; m is the smaller number of distinct values. A row of weight w counts as w equal rows,
so that a bootstrap, which draws rows several times, sorts only once. A column of one value orders nothing: its
correlations are 0.

Reference: Kendall 1945, "The treatment of ties in ranking problems"; Stuart 1953 (tau-c).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.data.corpus import Integers

Reals = NDArray[np.float64]

# Weights (draws, rows) at once.
MAX_WEIGHTS = 1 << 20

MEASURES = ("spearman", "tau_b", "tau_c")


def correlations(x: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """The three correlations of two columns.

    >>> {name: round(value, 3) for name, value in correlations([1, 2, 3, 4], [1, 1, 2, 1]).items()}
    {'spearman': 0.258, 'tau_b': 0.236, 'tau_c': 0.25}
    """
    pairs = RankedPairs(np.asarray(x), np.asarray(y))
    found = pairs.correlations(np.ones((1, len(pairs))))[0]
    return dict(zip(MEASURES, found.tolist(), strict=True))


class RankedPairs:
    """Two columns of numbers, sorted once. The second should be the one with fewer distinct values, which is faster."""

    def __init__(self, x: NDArray[np.generic], y: NDArray[np.generic]) -> None:
        self._x, self._y = (np.unique(column, return_inverse=True)[1] for column in (x, y))
        self._in_order = np.lexsort((self._y, self._x))

    def __len__(self) -> int:
        return len(self._in_order)

    def correlations(self, weights: Reals, group_of: Integers | None = None) -> Reals:
        """The three correlations for each draw of rows, by how often it takes each: (draws, rows) to (draws, 3).

        With the group of each row, the weights are those of groups: (draws, groups). Memory use is limited.
        """
        size = max(1, MAX_WEIGHTS // len(self))
        parts = (weights[start : start + size] for start in range(0, len(weights), size))
        return np.vstack([self._correlations(part if group_of is None else part[:, group_of]) for part in parts])

    def spearman(self, weights: Reals) -> Reals:
        """Spearman's rho alone for each row of weights: (draws, rows) to (draws,)."""
        return self._spearman(weights, *(_sums(column, weights) for column in (self._x, self._y)))

    def _correlations(self, weights: Reals) -> Reals:
        counts = weights.sum(1)
        x_weights, y_weights = (_sums(column, weights) for column in (self._x, self._y))  # (draws, distinct values)
        both = np.unique(self._x * (int(self._y.max()) + 1) + self._y, return_inverse=True)[1]
        pairs, x_ties, y_ties = _pairs(counts), _pairs(x_weights).sum(1), _pairs(y_weights).sum(1)
        discordant = _inversions(self._y[self._in_order], weights[:, self._in_order])
        # all pairs without ties are concordant or discordant; those tied in both columns were subtracted twice
        surplus = pairs - x_ties - y_ties + _pairs(_sums(both, weights)).sum(1) - 2 * discordant
        distinct = np.minimum(*((column > 0).sum(1) for column in (x_weights, y_weights)))
        return np.column_stack(
            [
                self._spearman(weights, x_weights, y_weights),
                _ratio(surplus, np.sqrt((pairs - x_ties) * (pairs - y_ties))),
                _ratio(2 * distinct * surplus, counts**2 * (distinct - 1)),
            ]
        )

    def _spearman(self, weights: Reals, x_weights: Reals, y_weights: Reals) -> Reals:
        centred, spreads = [], []
        for column, of_values in ((self._x, x_weights), (self._y, y_weights)):
            # the mean rank of a value, from the middle of all ranks
            ranks = of_values.cumsum(1) - of_values / 2 - weights.sum(1, keepdims=True) / 2
            centred.append(ranks[:, column])
            spreads.append((of_values * ranks**2).sum(1))
        return _ratio((weights * centred[0] * centred[1]).sum(1), np.sqrt(spreads[0] * spreads[1]))


def _pairs(weights: Reals) -> Reals:
    return weights * (weights - 1) / 2


def _ratio(numerator: Reals, denominator: Reals) -> Reals:
    """0 where the denominator is: a column of one value orders nothing."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def _sums(codes: Integers, weights: Reals) -> Reals:
    """The sum of the weights of each code, all of which occur: (draws, rows) to (draws, codes)."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return np.add.reduceat(weights[:, order], starts, axis=1)


def _inversions(codes: Integers, weights: Reals) -> Reals:
    """The weight of all pairs of rows of which the earlier has the larger code: (draws, rows) to (draws,).

    Two codes differ first in one bit: for each bit, rows with equal higher bits are brought together, and the earlier
    ones with a 1 are counted for each later one with a 0.
    """
    total = np.zeros(len(weights))
    for bit in range(int(codes.max(initial=0)).bit_length()):
        higher = codes >> (bit + 1)
        order = np.argsort(higher, kind="stable")
        is_one = (codes[order] >> bit & 1).astype(np.float64)
        ordered = weights[:, order]
        ones = np.cumsum(ordered * is_one, axis=1)
        first = np.flatnonzero(np.diff(higher[order], prepend=-1))  # of the rows with equal higher bits
        before = np.where(first > 0, ones[:, first - 1], 0)
        ones -= np.repeat(before, np.diff(np.append(first, len(codes))), axis=1)
        total += (ordered * (1 - is_one) * ones).sum(1)
    return total
