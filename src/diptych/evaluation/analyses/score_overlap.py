"""How well scores separate positive from negative pairs: the area that their distributions share.

    S = integral of min(P(x), Q(x)) dx        (Zheng et al. 2020, dual-path, Eq. 10 and Fig. 5)

P is the distribution of the scores of positive pairs (an image and a text of one group), Q that of all other pairs. S
is 0 if they are disjoint and 1 if they are equal. Both are estimated by histograms, and S depends on the bins: wider
bins share more. The paper does not state its bins, so compare only values with the same bins.
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
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.significance import MAX_WEIGHTS
from diptych.evaluation.metrics.tiles import BLOCK, GroupedItems, TilePass, group_items

BINS = 100
COSINE = (-1.0, 1.0)

_ROUNDING = 1e-4  # a cosine may exceed 1 slightly

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoreOverlap:
    """The shared area with its interval, and the size, mean and density by bin of both distributions.

    The interval comes from bootstrap draws of groups, each with its positive pairs and with its images' negative ones.
    With few positives per bin, chance separates the histograms of a draw: the interval may lie slightly below S.
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
        """Everything under stable names; the densities are those of the bins between `edges`."""
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

    The bins range from -1 to 1, as cosines do. Scores outside that range need a second pass, with bins from the lowest
    to the highest score. Memory use is that of one tile and of two histograms per group.
    """
    if bins < 1 or draws < 1:
        raise ScoreError(f"an overlap needs at least one bin and one draw, not {bins} and {draws}")
    images, texts = group_items(score, image_groups, text_groups, np.arange(score.images), np.arange(score.texts))
    if images.numbers[-1] == 0:
        raise ScoreError("all images and texts are of one group: there are no negatives to compare with")
    histograms = _Histograms(score, images, texts, np.linspace(*COSINE, bins + 1), block)
    histograms.run()
    if histograms.low < COSINE[0] - _ROUNDING or histograms.high > COSINE[1] + _ROUNDING:
        histograms = _Histograms(score, images, texts, _bin_edges(histograms.low, histograms.high, bins), block)
        histograms.run()
    return histograms.result(draws, seed)


def shared_area(positive: Reals, negative: Reals) -> Reals:
    """The area shared by histograms with the same bins: counts (..., bins) to areas (...).

    >>> shared_area(np.array([0.0, 1.0, 3.0]), np.array([2.0, 2.0, 0.0])).item()
    0.25
    """
    densities = [counts / counts.sum(-1, keepdims=True) for counts in (positive, negative)]
    return np.asarray(np.minimum(*densities).sum(-1), np.float64)


def _bin_edges(low: float, high: float, bins: int) -> Reals:
    """Bins from the lowest to the highest score; if they are equal, the score lies in the middle."""
    if not np.isfinite(high - low):
        raise ScoreError(f"scores between {low} and {high}: a distribution needs finite scores")
    margin = max(1e-6, 1e-6 * abs(low)) if high == low else 0.0
    return np.linspace(low - margin, high + margin, bins + 1)


class _Histograms(TilePass):
    """Counts the scores of every tile into bins, for each group of images: its positives and its negatives."""

    def __init__(self, score: Score, images: GroupedItems, texts: GroupedItems, edges: Reals, block: int) -> None:
        super().__init__(score, images, texts, block)
        self.edges = edges
        bins, groups = len(edges) - 1, int(images.numbers[-1]) + 1
        self.bins = bins
        self.positive, self.negative = (torch.zeros(groups, bins, dtype=torch.int64) for _ in range(2))
        self.positive_sum = self.negative_sum = 0.0
        self.low, self.high = np.inf, -np.inf

    def collect_positives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor) -> None:
        """Count the positives of this tile."""
        self.positive_sum += self._count(self.positive, rows, tile, positives)

    def collect_negatives(self, rows: slice, columns: slice, tile: Tensor, positives: Tensor | None) -> None:
        """Count the negatives of this tile."""
        wanted = None if positives is None else ~positives
        self.negative_sum += self._count(self.negative, rows, tile, wanted)

    def _count(self, counts: Tensor, rows: slice, tile: Tensor, wanted: Tensor | None) -> float:
        """Count the wanted scores of a tile, or all of them, and return their sum."""
        tile = tile.cpu().double()
        numbers = self.images.numbers[rows]  # in group order: the groups of a span are consecutive
        first, last = int(numbers[0]), int(numbers[-1])
        low, span = float(self.edges[0]), float(self.edges[-1] - self.edges[0])
        # clamp before the conversion to integers, which infinities do not survive
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
        """The overlap of the counted scores, with an interval from this many draws of groups."""
        positive, negative = (counts.double().numpy() for counts in (self.positive, self.negative))  # (groups, bins)
        drawn = _bootstrap_areas(positive, negative, draws, np.random.default_rng(seed))
        low, high = np.quantile(drawn, [0.025, 0.975])
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


def _bootstrap_areas(positive: Reals, negative: Reals, draws: int, random: np.random.Generator) -> Reals:
    """The shared area of each draw of as many groups as there are, with replacement: (draws,)."""
    groups = len(positive)
    areas = []
    most = max(1, MAX_WEIGHTS // groups)
    for start in range(0, draws, most):
        weights = random.multinomial(groups, np.full(groups, 1 / groups), size=min(most, draws - start)).astype(float)
        areas.append(shared_area(weights @ positive, weights @ negative))
    return np.concatenate(areas)
