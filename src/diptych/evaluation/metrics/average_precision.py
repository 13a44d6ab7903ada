"""Average precision: how well a query finds all of its right answers, not only the first of them.

    AP = 1/n sum_k  k / r_k

r_k is the place of the query's k-th right answer of n in the list of all answers: k plus the number of wrong answers
that score at least as high. So equal scores put wrong answers first, and right answers never stand in each other's way.
With a single right answer it is 1 / rank. Its mean over the queries is mAP, which person search tells beside recall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.evaluation.analyses.cross_retrieval import Answers, PairTally
from diptych.evaluation.metrics.ranks import BLOCK, Ranks, Score, Side, sides


@dataclass(frozen=True, eq=False)
class Precisions(Ranks):
    """Ranks, and beside them the average precision of each query, from 0 to 1."""

    image_precisions: NDArray[np.float64]
    text_precisions: NDArray[np.float64]


@torch.no_grad()
def ranks_with_precision(
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    image_rows: Integers | None = None,
    text_rows: Integers | None = None,
    block: int = BLOCK,
) -> Precisions:
    """The ranks that `ranks` finds and the average precisions, both from one pass over the scores, in tiles.

    Nothing is sorted but a query's own answers; memory is that of a tile and of the positive pairs. A NaN score, or a
    query without a positive, is a ScoreError as it is there.
    """
    image_rows = np.arange(score.images) if image_rows is None else image_rows
    text_rows = np.arange(score.texts) if text_rows is None else text_rows
    images, texts = sides(score, image_groups, text_groups, image_rows, text_rows)
    tally = PairTally(score, images, texts)
    tally.run(block)
    image_ranks, image_precisions = _measured(images, tally.of_images)
    text_ranks, text_precisions = _measured(texts, tally.of_texts)
    groups = image_groups[image_rows], text_groups[text_rows]
    return Precisions(image_ranks, text_ranks, *groups, image_rows, text_rows, image_precisions, text_precisions)


def average_precision_applies(image_groups: Integers) -> bool:
    """Whether some group has more than one image: then a text of it has several right answers."""
    return len(np.unique(image_groups)) < len(image_groups)


def _measured(side: Side, answers: Answers) -> tuple[Integers, NDArray[np.float64]]:
    """The rank and the average precision of each query of a side, in the order of the rows that were given."""
    query = np.repeat(np.arange(len(answers.own)), answers.own)
    wrong = answers.counts.numpy()
    wrong = wrong[np.lexsort((wrong, query))]  # query by query, the best answer, which fewest reach, first
    right = 1 + np.arange(len(query)) - answers.offsets[query]  # 1, 2, ... of each query
    totals = np.bincount(query, weights=right / (right + wrong))
    ranks, precisions = np.empty(len(side.order), np.int64), np.empty(len(side.order))
    ranks[side.order] = 1 + wrong[answers.offsets[:-1]]
    precisions[side.order] = totals / answers.own
    return ranks, precisions
