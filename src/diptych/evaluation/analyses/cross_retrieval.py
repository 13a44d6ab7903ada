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
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import BLOCK, Score, Side, Tally, sides

# The last rank of each interval; beyond the last of them there is one more.
ENDS = (1, 5, 10, 20, 50, 100, 200)

# Up to so many positives of a query, a comparison for each of them is quicker than a search among them.
COMPARED = 40

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


@torch.no_grad()
def cross_retrieval(
    score: Score, image_groups: Integers, text_groups: Integers, *, block: int = BLOCK
) -> CrossRetrieval:
    """Rank every positive pair against the negatives that share its text, and against those that share its image.

    Equal scores rank worse. Memory is that of a tile and of the positive pairs.
    """
    images, texts = sides(score, image_groups, text_groups, np.arange(score.images), np.arange(score.texts))
    if images.numbers[-1] == 0:
        raise ScoreError("every image and text is of one group: there are no negatives to rank a pair against")
    tally = PairTally(score, images, texts)
    tally.run(block)
    return tally.result()


class Answers:
    """The scores of each query's own answers, in group order, and how many negatives reach each of them.

    Query q's answers are those of its group, from place `starts[q]` of the other side on. Scores and counts stand one
    query after the other: those of query q from `offsets[q]` on, `own[q]` of them.
    """

    def __init__(self, queries: Side, answers: Side) -> None:
        first, last = (np.searchsorted(answers.numbers, queries.numbers, side) for side in ("left", "right"))
        self.starts, self.own = first, last - first
        self.offsets = np.append(0, np.cumsum(self.own))
        self.scores = torch.zeros(int(self.offsets[-1]), dtype=torch.float64)  # holds any score exactly
        self.counts = torch.zeros(int(self.offsets[-1]), dtype=torch.int64)

    def learn(self, queries: Integers, answers: Integers, scores: Tensor) -> None:
        """Keep the scores of some pairs of a query and one of its answers, by their places."""
        self.scores[torch.from_numpy(self.offsets[queries] + answers - self.starts[queries])] = scores

    def thresholds(self, span: slice) -> tuple[Tensor, Tensor]:
        """The scores of some queries' answers, (queries, most answers), and which of these places are filled."""
        own = torch.from_numpy(self.own[span])
        filled = torch.arange(int(own.max())) < own[:, None]
        thresholds = torch.full(filled.shape, torch.inf, dtype=torch.float64)
        thresholds[filled] = self.scores[self._part(span)]
        return thresholds, filled

    def add(self, span: slice, counts: Tensor) -> None:
        """Count on, for the answers of some queries, one after the other."""
        self.counts[self._part(span)] += counts

    def _part(self, span: slice) -> slice:
        return slice(int(self.offsets[span.start]), int(self.offsets[span.stop]))


class PairTally(Tally):
    """Counts for each positive pair, not for each query's best alone."""

    def __init__(self, score: Score, images: Side, texts: Side) -> None:
        super().__init__(score, images, texts)
        self.of_images, self.of_texts = Answers(images, texts), Answers(texts, images)

    def learn(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Keep the positives' scores of this tile."""
        image, text = (place.cpu().numpy() for place in positives.nonzero(as_tuple=True))
        scores = tile[positives].cpu().double()
        image, text = image + rows.start, text + columns.start
        self.of_images.learn(image, text, scores)
        self.of_texts.learn(text, image, scores)

    def count(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Count the negatives of this tile that score at least as high as each positive of their query."""
        for answers, span, axis in ((self.of_images, rows, 1), (self.of_texts, columns, 0)):
            thresholds, filled = answers.thresholds(span)
            if thresholds.shape[1] <= COMPARED:
                each = [self.at_least(threshold, axis, tile, positives) for threshold in thresholds.unbind(1)]
                counts = torch.stack(each, 1)
            else:
                counts = _found(thresholds, axis, tile, positives)
            answers.add(span, counts[filled])

    def result(self) -> CrossRetrieval:
        """All positive pairs, in the order of their images and texts in the corpus."""
        ours, theirs = self.of_images, self.of_texts
        image = np.repeat(np.arange(len(self.images.rows)), ours.own)  # places in group order
        text = ours.starts[image] + np.arange(len(image)) - ours.offsets[image]
        text_ranks = 1 + ours.counts.numpy()
        image_ranks = 1 + theirs.counts.numpy()[theirs.offsets[text] + image - theirs.starts[text]]
        negative_images = len(self.images.rows) - theirs.own[text]
        negative_texts = len(self.texts.rows) - ours.own[image]
        most = np.maximum(negative_images, negative_texts)
        # the product first: where it divides, as with five texts an image, the result is exact
        cross = 1 + np.maximum((image_ranks - 1) * most / negative_images, (text_ranks - 1) * most / negative_texts)
        rows, columns = self.images.rows[image], self.texts.rows[text]
        order = np.lexsort((columns, rows))
        return CrossRetrieval(rows[order], columns[order], image_ranks[order], text_ranks[order], cross[order])


def _found(thresholds: Tensor, axis: int, tile: Tensor, positives: Tensor | None) -> Tensor:
    """How many negatives along an axis reach each threshold of each query: (queries, thresholds)."""
    kind = torch.promote_types(tile.dtype, torch.float32)
    ordered, order = thresholds.to(tile.device, kind).sort(dim=1)
    scores = (tile if axis == 1 else tile.T).to(kind).contiguous()  # (queries, answers)
    reached = torch.searchsorted(ordered, scores, right=True)  # how many thresholds each score reaches: the lowest ones
    if positives is not None:
        reached.masked_fill_(positives if axis == 1 else positives.T, 0)
    queries, most = thresholds.shape
    reached += (most + 1) * torch.arange(queries, device=tile.device)[:, None]
    scores_reaching = torch.bincount(reached.flatten(), minlength=queries * (most + 1)).view(queries, most + 1)
    at_least = scores_reaching.flip(1).cumsum(1).flip(1)[:, 1:]  # those that reach n thresholds or more
    return torch.empty_like(at_least).scatter(1, order, at_least).cpu()
