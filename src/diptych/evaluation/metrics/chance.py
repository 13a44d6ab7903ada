"""The recall of a random order: the floor that every recall is read against."""

from __future__ import annotations

import numpy as np

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE


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


def chance_metrics(image_groups: Integers, text_groups: Integers) -> dict[str, float]:
    """The expected recalls in both directions and their sum, under the names of `Metrics`.

    >>> chance_metrics(np.array([0, 1]), np.array([0, 1]))["t2i_r1"]
    50.0
    """
    sides = ((IMAGE_TO_TEXT, image_groups, text_groups), (TEXT_TO_IMAGE, text_groups, image_groups))
    named = {
        f"{prefix}_r{cutoff}": chance_recall(queries, answers, cutoff)
        for prefix, queries, answers in sides
        for cutoff in CUTOFFS
    }
    return named | {"rsum": sum(named.values())}
