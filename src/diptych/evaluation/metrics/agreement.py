"""How well scores agree with grades, query by query and in samples of queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.rank_correlation import MEASURES, RankedPairs, correlations

Reals = NDArray[np.float64]


def correlations_within(scores: Reals, grades: Reals, queries: Integers) -> tuple[Integers, Reals]:
    """The queries that have more than one grade, and the correlations of each: (queries,) and (queries, MEASURES).

    >>> queries, found = correlations_within(np.array([1.0, 2, 3, 1]), np.array([2.0, 5, 4, 4]), np.array([7, 7, 8, 8]))
    >>> queries, found[:, 0]
    (array([7]), array([1.]))
    """
    names, starts, rows = _by_query(queries)
    used, found = [], []
    for name, of_query in zip(names, np.split(rows, starts[1:]), strict=True):
        if len(of_query) > 1 and np.ptp(grades[of_query]) > 0:
            used.append(name)
            found.append(list(correlations(scores[of_query], grades[of_query]).values()))
    return np.array(used, np.int64), np.array(found).reshape(-1, len(MEASURES))


def sampled_spearman(scores: Reals, grades: Reals, queries: Integers, draws: int, random: np.random.Generator) -> Reals:
    """Spearman's rho over one pair of each of half of the queries, in each draw of both: (draws,).

    A query with many pairs weighs no more than one with a single pair (Parekh et al. 2021, "Crisscrossed Captions").
    The rho of fewer than two pairs is 0.
    """
    names, starts, rows = _by_query(queries)
    sizes = np.diff(np.append(starts, len(rows)))
    found = np.zeros(draws)
    for draw in range(draws):
        drawn = random.permutation(len(names))[: len(names) // 2]
        sample = rows[starts[drawn] + random.integers(sizes[drawn])]
        if len(sample) > 1:
            found[draw] = RankedPairs(scores[sample], grades[sample]).spearman(np.ones((1, len(sample))))[0]
    return found


def _by_query(queries: Integers) -> tuple[Integers, Integers, Integers]:
    """The distinct queries, where the pairs of each begin, and the rows of all pairs, query after query."""
    rows = np.argsort(queries, kind="stable")
    names, starts = np.unique(queries[rows], return_index=True)
    return names, starts, rows
