"""R-Precision and mAP@R: how many of a query's R positives are among its first R answers, and how early.

    RP = 1/R |{k: r_k <= R}|        AP@R = 1/R sum over k with r_k <= R of  k / r_k

r_k is the rank of the k-th best positive in the list of all answers. Both are 1 if the positives come first, in any
order. Unlike recall@K, they ask for all positives, and unlike average precision, AP@R ignores those beyond the first R
answers. Their means over the queries are R-Precision and mAP@R.

Reference: Musgrave et al. 2020, "A metric learning reality check", section 3.2; Chun et al. 2022, "ECCV Caption".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.relevance import Relevance

Reals = NDArray[np.float64]


def r_precisions(ranks: Integers, relevance: Relevance) -> Reals:
    """The R-Precision of each query, from 0 to 1, by the ranks that `positive_ranks` returns.

    >>> r_precisions(np.array([1, 3, 2]), Relevance.from_lists({0: [4, 5], 1: [6]})).tolist()
    [0.5, 0.0]
    """
    r = np.repeat(relevance.sizes, relevance.sizes)
    return _sums(ranks <= r, relevance) / relevance.sizes


def average_precisions_at_r(ranks: Integers, relevance: Relevance) -> Reals:
    """The average precision at R of each query, from 0 to 1, by the ranks that `positive_ranks` returns.

    >>> average_precisions_at_r(np.array([2, 3, 4, 1]), Relevance.from_lists({0: [7, 8, 9], 1: [5]})).round(3).tolist()
    [0.389, 1.0]
    """
    r = np.repeat(relevance.sizes, relevance.sizes)
    position = 1 + np.arange(len(ranks)) - np.repeat(relevance.starts, relevance.sizes)
    return _sums(np.where(ranks <= r, position / ranks, 0), relevance) / relevance.sizes


def _sums(values: NDArray[np.generic], relevance: Relevance) -> Reals:
    """The sum over the positives of each query, of which every query has at least one."""
    return np.add.reduceat(values.astype(np.float64), relevance.starts)
