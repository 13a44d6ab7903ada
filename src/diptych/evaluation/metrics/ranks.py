"""The rank of each query's best positive: of each image among the texts, and of each text among the images.

    rank(q) = 1 + |{negatives n of q: s(q, n) >= max of s(q, p) over the positives p of q}|

Ties are pessimistic: a negative with the same score ranks above the positive. Other positives never count. Nothing is
sorted: two comparisons per score, counted tile by tile, give both directions from one product, and memory use is that
of one tile however large the corpus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import BLOCK, GroupedItems, TilePass, group_items


@dataclass(frozen=True, eq=False)
class Ranks:
    """1-based ranks, one entry per query, with each query's group and its row in the corpus.

    The average precisions, from 0 to 1, are those of the same queries, if they were measured.
    """

    images: Integers
    texts: Integers
    image_groups: Integers
    text_groups: Integers
    image_rows: Integers
    text_rows: Integers
    image_precisions: NDArray[np.float64] | None = None
    text_precisions: NDArray[np.float64] | None = None


@torch.no_grad()
def ranks(
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    image_rows: Integers | None = None,
    text_rows: Integers | None = None,
    block: int = BLOCK,
    run: Callable[[TilePass], None] = TilePass.run,
) -> Ranks:
    """Rank every image among the texts and every text among the images, or only the given rows among each other.

    `run` goes over all tiles, for example so that an interrupted pass can continue.

    Raises ScoreError, naming the image or text by its row, if a score is NaN or a query has no positive.

    >>> from diptych.evaluation.metrics.scores import matrix_score
    >>> score = matrix_score(torch.tensor([[0.9, 0.5, 0.2], [0.9, 0.1, 0.7]]))
    >>> found = ranks(score, np.array([0, 1]), np.array([0, 0, 1]))
    >>> found.images, found.texts
    (array([1, 2]), array([2, 1, 1]))
    """
    image_rows = np.arange(score.images) if image_rows is None else image_rows
    text_rows = np.arange(score.texts) if text_rows is None else text_rows
    counter = RankCounter(score, *group_items(score, image_groups, text_groups, image_rows, text_rows), block)
    run(counter)
    groups = image_groups[image_rows], text_groups[text_rows]
    return Ranks(counter.image_ranks(), counter.text_ranks(), *groups, image_rows, text_rows)


class RankCounter(TilePass):
    """Keeps the best positive score of each query and counts the negatives that reach it."""

    def __init__(self, score: Score, images: GroupedItems, texts: GroupedItems, block: int) -> None:
        super().__init__(score, images, texts, block)
        self._best_positive = tuple(  # float64 holds a score of any precision exactly
            torch.full((len(items),), -torch.inf, dtype=torch.float64) for items in (images, texts)
        )
        self._counts = tuple(torch.zeros(len(items), dtype=torch.int64) for items in (images, texts))

    def collect_positives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Raise the best positive scores to those of this tile.

        They come from the product that is counted, not from a product of each pair: a sum in another order differs in
        its last bit and would break ties.
        """
        scores = tile.masked_fill(~positives, -torch.inf)
        for best, span, axis in zip(self._best_positive, (rows, columns), (1, 0), strict=True):
            best[span] = torch.maximum(best[span], scores.amax(axis).cpu().double())

    def collect_negatives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Count the negatives of this tile that score at least as high as their query's best positive."""
        for best, counts, span, axis in zip(self._best_positive, self._counts, (rows, columns), (1, 0), strict=True):
            counts[span] += self.count_at_least(best[span], axis, tile, positives)

    def exchange_positives(self, rows: slice, columns: slice) -> None:
        """Give all ranks the best positive scores of each."""
        images, texts = self._best_positive
        self._best_positive = self.ranks.all_rows(images[rows]), self.ranks.all_rows(texts[columns])

    def state(self) -> dict[str, Tensor]:
        """The best positive scores, and the counts of this rank."""
        best, counts = self._best_positive, self._counts
        return {"image_best": best[0], "text_best": best[1], "image_counts": counts[0], "text_counts": counts[1]}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        self._best_positive = state["image_best"], state["text_best"]
        self._counts = state["image_counts"], state["text_counts"]

    def image_ranks(self) -> Integers:
        """The ranks of the images, in the order in which their rows were given."""
        return self._in_given_order(self._counts[0], self.images)

    def text_ranks(self) -> Integers:
        """The ranks of the texts, in the order in which their rows were given."""
        return self._in_given_order(self._counts[1], self.texts)

    def _in_given_order(self, counts: Tensor, items: GroupedItems) -> Integers:
        ranks = np.empty(len(items), np.int64)
        ranks[items.order] = self.ranks.sum_(counts.clone()).numpy() + 1
        return ranks
