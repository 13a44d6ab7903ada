"""Average precision: how well a query finds all of its positives, not only the first of them.

    AP = 1/n sum_k  k / r_k

r_k is the rank of the query's k-th positive of n in the list of all answers: k plus the number of negatives that score
at least as high. So ties put negatives first, and positives never push each other down. With a single positive, AP is
1 / rank. Its mean over the queries is mAP, which person search reports beside recall.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.pair_ranks import PairCounter, QueryPositives
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import BLOCK, GroupedItems, TilePass, group_items


@torch.no_grad()
def ranks_with_precision(
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    image_rows: Integers | None = None,
    text_rows: Integers | None = None,
    block: int = BLOCK,
    run: Callable[[TilePass], None] = TilePass.run,
) -> Ranks:
    """The ranks that `ranks` returns, with the average precision of each query, from one pass over the scores.

    Only the positives of a query are sorted; memory use is that of one tile and of the positive pairs.

    >>> from diptych.evaluation.metrics.scores import matrix_score
    >>> score = matrix_score(torch.tensor([[0.9, 0.5, 0.7], [0.1, 0.2, 0.8]]))
    >>> found = ranks_with_precision(score, np.array([0, 1]), np.array([0, 0, 1]))
    >>> found.images, found.image_precisions.round(3)
    (array([1, 1]), array([0.833, 1.   ]))
    """
    image_rows = np.arange(score.images) if image_rows is None else image_rows
    text_rows = np.arange(score.texts) if text_rows is None else text_rows
    images, texts = group_items(score, image_groups, text_groups, image_rows, text_rows)
    counter = PairCounter(score, images, texts, block)
    run(counter)
    image_ranks, image_precisions = _ranks_and_precisions(images, counter, counter.image_queries)
    text_ranks, text_precisions = _ranks_and_precisions(texts, counter, counter.text_queries)
    groups = image_groups[image_rows], text_groups[text_rows]
    return Ranks(image_ranks, text_ranks, *groups, image_rows, text_rows, image_precisions, text_precisions)


def average_precision_applies(image_groups: Integers) -> bool:
    """Whether mAP is reported by default: some group has several images, so that a text has several positives.

    >>> average_precision_applies(np.array([3, 1, 3])), average_precision_applies(np.array([3, 1, 2]))
    (True, False)
    """
    return len(np.unique(image_groups)) < len(image_groups)


def _ranks_and_precisions(
    items: GroupedItems, counter: PairCounter, queries: QueryPositives
) -> tuple[Integers, NDArray[np.float64]]:
    """The rank and the average precision of each query, in the order in which their rows were given."""
    query = np.repeat(np.arange(len(queries.sizes)), queries.sizes)
    negatives = counter.negatives_above(queries)
    negatives = negatives[np.lexsort((negatives, query))]  # query by query, the best positive first
    position = 1 + np.arange(len(query)) - queries.offsets[query]  # 1, 2, ... within each query
    totals = np.bincount(query, weights=position / (position + negatives))
    ranks, precisions = np.empty(len(items), np.int64), np.empty(len(items))
    ranks[items.order] = 1 + negatives[queries.offsets[:-1]]
    precisions[items.order] = totals / queries.sizes
    return ranks, precisions
