"""How far the scores of right pairs and of wrong pairs lie apart: the area that their distributions share.

    S = integral of min(P(x), Q(x)) dx        (Zheng et al. 2020, dual-path, Eq. 10 and Fig. 5)

P is the distribution of the scores of positive pairs (an image and a text of one group), Q that of all other pairs: S
is 0 where they lie apart, and 1 where they are alike. Both are taken as histograms, and S depends on their bins: wider
ones share more. The paper does not tell its own; compare figures of the same bins only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import BLOCK, Score, Side, Tally, sides
from diptych.evaluation.metrics.significance import MAX_WEIGHTS

BINS = 100
COSINE = (-1.0, 1.0)

_ROUNDING = 1e-4  # a cosine may be a little more than 1

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoreOverlap:
    """The shared area with its interval, and the two distributions: how many pairs, their mean, their density by bin.

    The interval is of bootstrap draws of groups, each with its positive pairs and with its images' negative ones.
    Chance in the bins of few positives moves S: the interval may lie somewhat below it.
    """

    shared: float
    interval: tuple[float, float]
    positives: int
    negatives: int
    positive_mean: float
    negative_mean: float
    edges: Reals  # (bins + 1,)
    positive_density: Reals  # (bins,)
    negative_density: Reals  # (bins,)

    def to_json(self) -> dict[str, Any]:
        """Everything under lasting names; the densities of the bins between `edges`."""
        return {
            "s": self.shared,
            "interval": list(self.interval),
            "positive_pairs": self.positives,
            "negative_pairs": self.negatives,
            "positive_mean": self.positive_mean,
            "negative_mean": self.negative_mean,
            "bins": len(self.edges) - 1,
            "edges": self.edges.tolist(),
            "positive_density": self.positive_density.tolist(),
            "negative_density": self.negative_density.tolist(),
        }


@torch.no_grad()
def score_overlap(
    score: Score,
    image_groups: Integers,
    text_groups: Integers,
    *,
    bins: int = BINS,
    draws: int = 1000,
    seed: int = 0,
    block: int = BLOCK,
) -> ScoreOverlap:
    """Compare the scores of all positive and all negative pairs, tile by tile.

    The bins go from -1 to 1, where cosines lie. Scores beyond need a second pass, with bins from the lowest to the
    highest of them. Memory is that of a tile and of two histograms a group.
    """
    if bins < 1 or draws < 1:
        raise ScoreError(f"an overlap needs some bins and some draws, not {bins} and {draws}")
    images, texts = sides(score, image_groups, text_groups, np.arange(score.images), np.arange(score.texts))
    if images.numbers[-1] == 0:
        raise ScoreError("every image and text is of one group: there are no negatives to compare with")
    counted = _Counts(score, images, texts, np.linspace(*COSINE, bins + 1))
    counted.run(block)
    if counted.low < COSINE[0] - _ROUNDING or counted.high > COSINE[1] + _ROUNDING:
        counted = _Counts(score, images, texts, _edges(counted.low, counted.high, bins))
        counted.run(block)
    return counted.result(draws, seed)


def _edges(low: float, high: float, bins: int) -> Reals:
    """Bins for what lies between these scores; equal ones stand in the middle."""
    if not np.isfinite(high - low):
        raise ScoreError(f"scores between {low} and {high}: a distribution needs finite ones")
    room = max(1e-6, 1e-6 * abs(low)) if high == low else 0.0
    return np.linspace(low - room, high + room, bins + 1)


def shared_area(positive: Reals, negative: Reals) -> Reals:
    """The area that histograms of the same bins share, (...,) of counts (..., bins).

    >>> shared_area(np.array([0.0, 1.0, 3.0]), np.array([2.0, 2.0, 0.0])).item()
    0.25
    """
    shares = [counts / counts.sum(-1, keepdims=True) for counts in (positive, negative)]
    return np.asarray(np.minimum(*shares).sum(-1), np.float64)


class _Counts(Tally):
    """Counts the scores of every tile into bins, for each group of images: its positives, and its negatives."""

    def __init__(self, score: Score, images: Side, texts: Side, edges: Reals) -> None:
        super().__init__(score, images, texts)
        self.edges = edges
        bins, groups = len(edges) - 1, int(images.numbers[-1]) + 1
        self.bins = bins
        self.positive, self.negative = (torch.zeros(groups, bins, dtype=torch.int64) for _ in range(2))
        self.positive_sum = self.negative_sum = 0.0
        self.low, self.high = np.inf, -np.inf

    def learn(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Take in the positives of this tile."""
        self.positive_sum += self._take(self.positive, rows, tile, positives)

    def count(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Take in the negatives of this tile."""
        wanted = None if positives is None else ~positives
        self.negative_sum += self._take(self.negative, rows, tile, wanted)

    def _take(self, counts: Tensor, rows: slice, tile: Tensor, wanted: Tensor | None) -> float:
        """Count the wanted scores of a tile, or all of them, and give their sum."""
        tile = tile.cpu().double()
        numbers = self.images.numbers[rows]  # in group order: those of a span follow each other
        first, last = int(numbers[0]), int(numbers[-1])
        low, span = float(self.edges[0]), float(self.edges[-1] - self.edges[0])
        # what lies beyond the ends is held to them before it becomes a whole number, which an infinity cannot
        cells = tile.sub(low).mul_(self.bins).div_(span).clamp_(0, self.bins - 1).long()
        cells += torch.from_numpy(numbers - first)[:, None] * self.bins
        if wanted is not None:
            tile, cells = (each[wanted.cpu()] for each in (tile, cells))
            if not len(tile):
                return 0.0
        self.low, self.high = min(self.low, tile.min().item()), max(self.high, tile.max().item())
        counted = torch.bincount(cells.flatten(), minlength=(last + 1 - first) * self.bins)
        counts[first : last + 1] += counted.view(-1, self.bins)
        return tile.sum().item()

    def result(self, draws: int, seed: int) -> ScoreOverlap:
        """What was counted, with the interval of so many draws of groups."""
        positive, negative = (counts.double().numpy() for counts in (self.positive, self.negative))  # (groups, bins)
        alike = _redrawn(positive, negative, draws, np.random.default_rng(seed))
        low, high = np.quantile(alike, [0.025, 0.975])
        totals = positive.sum(0), negative.sum(0)
        pairs = [int(total.sum()) for total in totals]
        width = np.diff(self.edges)
        return ScoreOverlap(
            shared=float(shared_area(*totals)),
            interval=(float(low), float(high)),
            positives=pairs[0],
            negatives=pairs[1],
            positive_mean=self.positive_sum / pairs[0],
            negative_mean=self.negative_sum / pairs[1],
            edges=self.edges,
            positive_density=totals[0] / pairs[0] / width,
            negative_density=totals[1] / pairs[1] / width,
        )


def _redrawn(positive: Reals, negative: Reals, draws: int, random: np.random.Generator) -> Reals:
    """The shared area of each draw of as many groups as there are, with replacement: (draws,)."""
    groups = len(positive)
    alike = []
    most = max(1, MAX_WEIGHTS // groups)
    for start in range(0, draws, most):
        weights = random.multinomial(groups, np.full(groups, 1 / groups), size=min(most, draws - start)).astype(float)
        alike.append(shared_area(weights @ positive, weights @ negative))
    return np.concatenate(alike)
