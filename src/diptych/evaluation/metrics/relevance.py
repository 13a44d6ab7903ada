"""Positives that are listed for each query, rather than shared by a group, and the rank of every one of them.

    r_k = k + |{negatives n of q: s(q, n) >= s(q, p_k)}|

p_1, p_2, ... are the positives of query q, the best first. As with groups, ties put negatives first, and positives
never push each other down. Nothing is sorted but the positives: a block of queries is scored with all answers, and the
negatives that reach each positive are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.pair_ranks import count_by_search
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import BLOCK

Side = Literal["images", "texts"]

# The row of a positive that is not among the answers, and its rank.
NOT_SEARCHED = -1
NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, eq=False)
class Relevance:
    """The positives of some queries: the first `sizes[0]` entries of `positives` are those of `queries[0]`, and so on.

    All are rows. A positive that is NOT_SEARCHED is one that no query can find, but that counts in `sizes`.
    """

    queries: Integers
    positives: Integers
    sizes: Integers

    @classmethod
    def from_lists(cls, lists: Mapping[int, Collection[int]]) -> Relevance:
        """The positives of each query, by its row; raises ScoreError for a query without any."""
        if empty := [query for query, positives in lists.items() if not positives]:
            raise ScoreError(f"query {empty[0]} has no positive; leave it out (rows count from 0)")
        positives = [np.fromiter(each, np.int64) for each in lists.values()]
        sizes = np.array([len(each) for each in positives], np.int64)
        return cls(np.fromiter(lists, np.int64), np.concatenate([*positives, np.empty(0, np.int64)]), sizes)

    @property
    def starts(self) -> Integers:
        """Where the positives of each query begin."""
        return np.cumsum(self.sizes) - self.sizes


@torch.no_grad()
def positive_ranks(score: Score, relevance: Relevance, side: Side, *, block: int = BLOCK) -> Integers:
    """The ranks of the positives among all answers: query after query, in ascending order within each query.

    `side` is what the queries are; the answers are all texts or all images. Memory use is that of one block of scores.
    Raises ScoreError if a score is NaN.

    >>> from diptych.evaluation.metrics.scores import matrix_score
    >>> score = matrix_score(torch.tensor([[0.9, 0.5, 0.7, 0.1], [0.3, 0.8, 0.3, 0.2]]))
    >>> positive_ranks(score, Relevance.from_lists({0: [1, 3], 1: [0]}), "images")
    array([3, 4, 3])
    >>> positive_ranks(score, Relevance.from_lists({1: [0], 2: [0]}), "texts")
    array([2, 1])
    """
    query = np.repeat(np.arange(len(relevance.sizes)), relevance.sizes)
    negatives = np.full(len(query), NEVER)
    searched = np.flatnonzero(relevance.positives != NOT_SEARCHED)
    at_once = max(1, block // (score.texts if side == "images" else score.images))
    blocks = -(-len(relevance.queries) // at_once)
    for rows in np.array_split(np.arange(len(relevance.queries)), blocks):  # of nearly equal size
        tile = _scores(score, relevance.queries[rows], side)  # (queries, answers)
        first, last = np.searchsorted(query[searched], (rows[0], rows[-1] + 1))
        part = searched[first:last]
        negatives[part] = _negatives_at_least(tile, query[part] - rows[0], relevance.positives[part])
    negatives = negatives[np.lexsort((negatives, query))]  # query by query, the best positive first
    position = 1 + np.arange(len(query)) - relevance.starts[query]  # 1, 2, ... within each query
    return np.where(negatives == NEVER, NEVER, position + np.where(negatives == NEVER, 0, negatives))


def _scores(score: Score, queries: Integers, side: Side) -> Tensor:
    """The scores of some images or texts with all of the others: (queries, answers)."""
    rows = torch.from_numpy(queries)
    if side == "images":
        tile = score.against(slice(0, score.texts))(rows)
    else:
        tile = score.against(rows)(slice(0, score.images)).T
    # the sum is NaN if any score is, or if infinities cancel: only then is it worth looking at each
    if tile.sum().isnan() and len(wrong := tile.isnan().nonzero()):
        query, answer = int(queries[wrong[0, 0]]), int(wrong[0, 1])
        image, text = (query, answer) if side == "images" else (answer, query)
        raise ScoreError(f"image {image} and text {text}: their score is not a number (rows count from 0)")
    return tile


def _negatives_at_least(tile: Tensor, query: Integers, positives: Integers) -> Integers:
    """How many negatives reach the score of each positive, given by its row and column in the tile."""
    rows, columns = (torch.from_numpy(numbers).to(tile.device) for numbers in (query, positives))
    is_positive = torch.zeros(tile.shape, dtype=torch.bool, device=tile.device)
    is_positive[rows, columns] = True
    sizes = np.bincount(query, minlength=len(tile))
    place = np.arange(len(query)) - (np.cumsum(sizes) - sizes)[query]  # 0, 1, ... within each query
    thresholds = torch.full((len(tile), int(sizes.max())), torch.inf, dtype=torch.float64)
    thresholds[torch.from_numpy(query), torch.from_numpy(place)] = tile[rows, columns].cpu().double()
    counts: Integers = count_by_search(thresholds, 1, tile, is_positive).numpy()
    return counts[query, place]
