"""The recall of a random order: the floor that every recall is read against."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Integers


def chance_recall(query_groups: Integers, answer_groups: Integers, cutoff: int) -> float:
    """The expected recall in percent of a random order of the answers.

    >>> chance_recall(np.array([0, 1]), np.array([0, 1, 2, 3]), 1)
    25.0
    """
    groups, sizes = np.unique(answer_groups, return_counts=True)
    positives = sizes[np.searchsorted(groups, query_groups)]
    answers, missed = len(answer_groups), np.ones(len(query_groups))
    for position in range(min(cutoff, answers)):  # the probability that the answer here is negative, as all before
        missed *= np.clip(answers - positives - position, 0, None) / (answers - position)
    return 100 * float(np.mean(1 - missed))
