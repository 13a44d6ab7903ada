"""The cross-retrieval rank: how far down a positive pair stands on the side where it stands worse.

    max(5 r_i - 4, r_t)        (Chen et al. 2020, AOQ, section 7.1 and Fig. 6)

r_i is the rank of a positive pair against the negative images of its text, r_t against the negative texts of its image.
Five texts an image make five times as many negative texts as negative images, and 5 r_i - 4 = 1 + 5 (r_i - 1) goes as
far as r_t does. So here, for any number of texts and images a group: the rank among the fewer negatives is stretched to
the number of the more,

    max(1 + (r_i - 1) m / n_i,  1 + (r_t - 1) m / n_t),        m = max(n_i, n_t)

with the pair's n_i negative images and n_t negative texts. It is 1 just where the pair beats all of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.ranks import BLOCK, Score, Side, Tally, sides

# The last rank of each interval; beyond the last of them there is one more.
ENDS = (1, 5, 10, 20, 50, 100, 200)

INTERVALS = ("1", *(f"{first + 1}–{last}" for first, last in pairwise(ENDS)), f"> {ENDS[-1]}")


@dataclass(frozen=True, eq=False)
class CrossRetrieval:
    """Every positive pair by its rows, its 1-based ranks against negative images and texts, and the cross rank."""

    images: Integers
    texts: Integers
    image_ranks: Integers
    text_ranks: Integers
    cross: NDArray[np.float64]

    @property
    def shares(self) -> dict[str, float]:
        """The percentage of pairs in each of the INTERVALS."""
        places = np.searchsorted(ENDS, self.cross)
        counts = np.bincount(places, minlength=len(INTERVALS))
        return dict(zip(INTERVALS, (100 * counts / len(self.cross)).tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """The number of pairs, their median and mean, and the percentage in each interval by its last rank."""
        named = dict(zip([*(str(end) for end in ENDS), "more"], self.shares.values(), strict=True))
        median, mean = float(np.median(self.cross)), float(self.cross.mean())
        return {"pairs": len(self.cross), "median": median, "mean": mean, "percent_up_to": named}

    def render(self) -> Table:
        """A table for people: a column an interval."""
        table = Table(title=f"cross-retrieval rank of {len(self.cross):,} pairs", box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for name in INTERVALS:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_row("percent", *(f"{share:.1f}" for share in self.shares.values()))
        return table


@torch.no_grad()
def cross_retrieval(
    score: Score, image_groups: Integers, text_groups: Integers, *, block: int = BLOCK
) -> CrossRetrieval:
    """Rank every positive pair against the negatives that share its text, and against those that share its image.

    Equal scores rank worse. Memory is that of a tile and of the positives, every query taking as many places as the
    largest group has answers.
    """
    images, texts = sides(score, image_groups, text_groups, np.arange(score.images), np.arange(score.texts))
    if images.numbers[-1] == 0:
        raise ScoreError("every image and text is of one group: there are no negatives to rank a pair against")
    tally = _PairTally(score, images, texts)
    tally.run(block)
    return tally.result()


class _Answers:
    """The scores of each query's own answers, in group order, and how many negatives reach each of them.

    Query q's answers are those of its group, from place `starts[q]` of the other side on.
    """

    def __init__(self, queries: Side, answers: Side) -> None:
        first, last = (np.searchsorted(answers.numbers, queries.numbers, side) for side in ("left", "right"))
        self.starts, self.own = first, last - first
        shape = (len(queries.numbers), int(self.own.max()))
        self.scores = torch.full(shape, torch.inf, dtype=torch.float64)  # holds any score exactly
        self.counts = torch.zeros(shape, dtype=torch.int64)


class _PairTally(Tally):
    """Counts for each positive pair, not for each query's best alone."""

    def __init__(self, score: Score, images: Side, texts: Side) -> None:
        super().__init__(score, images, texts)
        self.of_images, self.of_texts = _Answers(images, texts), _Answers(texts, images)

    def learn(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Keep the positives' scores of this tile."""
        image, text = (place.cpu().numpy() for place in positives.nonzero(as_tuple=True))
        scores = tile[positives].cpu().double()
        image, text = image + rows.start, text + columns.start
        self.of_images.scores[image, text - self.of_images.starts[image]] = scores
        self.of_texts.scores[text, image - self.of_texts.starts[text]] = scores

    def count(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Count the negatives of this tile that score at least as high as each positive of their query."""
        for answers, span, axis in ((self.of_images, rows, 1), (self.of_texts, columns, 0)):
            for place in range(int(answers.own[span].max())):
                thresholds = answers.scores[span, place]
                answers.counts[span, place] += self.at_least(thresholds, axis, tile, positives)

    def result(self) -> CrossRetrieval:
        """All positive pairs, in the order of their images and texts in the corpus."""
        image = np.repeat(np.arange(len(self.images.rows)), self.of_images.own)  # places in group order
        starts = np.repeat(np.cumsum(self.of_images.own) - self.of_images.own, self.of_images.own)
        text_slot = np.arange(len(image)) - starts
        text = self.of_images.starts[image] + text_slot
        text_ranks = 1 + self.of_images.counts.numpy()[image, text_slot]
        image_ranks = 1 + self.of_texts.counts.numpy()[text, image - self.of_texts.starts[text]]
        negative_images = len(self.images.rows) - self.of_texts.own[text]
        negative_texts = len(self.texts.rows) - self.of_images.own[image]
        most = np.maximum(negative_images, negative_texts)
        # the product first: where it divides, as with five texts an image, the result is exact
        cross = 1 + np.maximum((image_ranks - 1) * most / negative_images, (text_ranks - 1) * most / negative_texts)
        rows, columns = self.images.rows[image], self.texts.rows[text]
        order = np.lexsort((columns, rows))
        return CrossRetrieval(rows[order], columns[order], image_ranks[order], text_ranks[order], cross[order])
