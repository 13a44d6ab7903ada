"""What a random order would reach: the floor that every recall is read against."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Integers


def chance_recall(query_groups: Integers, answer_groups: Integers, cutoff: int) -> float:
    """The expected recall in percent of a random order: how often its first answers hold a positive.

    >>> chance_recall(np.array([0, 1]), np.array([0, 1, 2, 3]), 1)
    25.0
    """
    known, counts = np.unique(answer_groups, return_counts=True)
    positives = counts[np.searchsorted(known, query_groups)]
    answers, missed = len(answer_groups), np.ones(len(query_groups))
    for place in range(min(cutoff, answers)):  # the answer at this place is none of the positives
        missed *= np.clip(answers - positives - place, 0, None) / (answers - place)
    return 100 * float(np.mean(1 - missed))
