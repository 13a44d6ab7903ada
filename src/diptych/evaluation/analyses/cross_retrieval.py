"""The cross-retrieval rank: the rank of a positive pair in the direction in which it ranks worse.

    max(5 r_i - 4, r_t)        (Chen et al. 2020, AOQ, section 7.1 and Fig. 6)

r_i is the rank of a positive pair against the negative images of its text, r_t against the negative texts of its image.
With five texts per image there are five times as many negative texts as negative images, so that 5 r_i - 4, which is
1 + 5 (r_i - 1), has the range of r_t. For any number of texts and images per group, the rank among the fewer negatives
is stretched to the number of the more:

    max(1 + (r_i - 1) m / n_i,  1 + (r_t - 1) m / n_t),        m = max(n_i, n_t)

with the pair's n_i negative images and n_t negative texts. It is 1 if and only if the pair beats all of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.pair_ranks import PairCounter
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import BLOCK, group_items

# The last rank of each interval; one more interval holds everything beyond.
ENDS = (1, 5, 10, 20, 50, 100, 200)

INTERVALS = ("1", *(f"{first + 1}–{last}" for first, last in pairwise(ENDS)), f"> {ENDS[-1]}")


@dataclass(frozen=True, eq=False)
class CrossRetrieval:
    """Every positive pair by its rows, its 1-based ranks against negative images and texts, and its cross rank."""

    images: Integers
    texts: Integers
    image_ranks: Integers
    text_ranks: Integers
    cross_ranks: NDArray[np.float64]

    @property
    def percentages(self) -> dict[str, float]:
        """The percentage of pairs in each of the INTERVALS."""
        interval = np.searchsorted(ENDS, self.cross_ranks)
        counts = np.bincount(interval, minlength=len(INTERVALS))
        return dict(zip(INTERVALS, (100 * counts / len(self.cross_ranks)).tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """The number of pairs, their median and mean, and the percentage in each interval by its last rank."""
        named = dict(zip([*(str(end) for end in ENDS), "more"], self.percentages.values(), strict=True))
        median, mean = float(np.median(self.cross_ranks)), float(self.cross_ranks.mean())
        return {"pairs": len(self.cross_ranks), "median": median, "mean": mean, "percent_up_to": named}


@torch.no_grad()
def cross_retrieval(
    score: Score, image_groups: Integers, text_groups: Integers, *, block: int = BLOCK
) -> CrossRetrieval:
    """Rank every positive pair against the negatives that share its text, and against those that share its image.

    Ties are pessimistic. Memory use is that of one tile and of the positive pairs.
    """
    images, texts = group_items(score, image_groups, text_groups, np.arange(score.images), np.arange(score.texts))
    if images.numbers[-1] == 0:
        raise ScoreError("all images and texts are of one group: there are no negatives to rank a pair against")
    counter = PairCounter(score, images, texts, block)
    counter.run()
    return _cross_ranks(counter)


def _cross_ranks(counter: PairCounter) -> CrossRetrieval:
    """All positive pairs, ordered by their image and text in the corpus."""
    by_image, by_text = counter.image_queries, counter.text_queries
    image = np.repeat(np.arange(len(counter.images)), by_image.sizes)  # positions in group order
    text = by_image.starts[image] + np.arange(len(image)) - by_image.offsets[image]
    text_ranks = 1 + counter.negatives_above(by_image)
    image_ranks = 1 + counter.negatives_above(by_text)[by_text.offsets[text] + image - by_text.starts[text]]
    negative_images = len(counter.images) - by_text.sizes[text]
    negative_texts = len(counter.texts) - by_image.sizes[image]
    most = np.maximum(negative_images, negative_texts)
    # multiply before dividing: if the division leaves no rest, as with five texts per image, the result is exact
    cross = 1 + np.maximum((image_ranks - 1) * most / negative_images, (text_ranks - 1) * most / negative_texts)
    rows, columns = counter.images.rows[image], counter.texts.rows[text]
    order = np.lexsort((columns, rows))
    return CrossRetrieval(rows[order], columns[order], image_ranks[order], text_ranks[order], cross[order])
