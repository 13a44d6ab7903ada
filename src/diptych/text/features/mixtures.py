"""Mixture models of word vectors, fitted by expectation maximisation (EM).

Component k has a weight w_k, and along each dimension d a location m and a scale s. A dimension is Gaussian or
Laplacian,

    log g(x) = -(x - m)^2 / (2 s^2) - log s - log(2 pi) / 2
    log l(x) = -|x - m| / s - log s - log 2

and p(x) = sum_k w_k prod_d (g or l). In a GMM all dimensions are Gaussian. In an HGLMM (Klein et al. 2015) each
dimension of each component is whichever of the two fits better: each step fits a Gaussian by the weighted mean and
deviation, and a Laplacian by the weighted median and mean absolute deviation, and keeps the one that gives the words,
weighted by the component's posterior, the higher likelihood. This is the M step of EM, so the likelihood never falls.

Equal words have equal vectors, so everything is computed on distinct words weighted by their counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.errors import RecipeError
from diptych.progress import ProgressCallback

TOLERANCE = 1e-4  # EM stops after a step that raises the mean log-likelihood per word by less
FLOOR = 0.05  # the smallest scale, relative to the deviation of all words: one word alone would have scale 0
_MIN_WEIGHT = 1e-10
_BLOCK_ELEMENTS = 1 << 18  # words x centres x dimensions
_LOG_GAUSSIAN, _LOG_LAPLACIAN = math.log(2 * math.pi) / 2, math.log(2)


@dataclass(frozen=True)
class Mixture:
    """The weight of each component, and the location, scale and kind of each of its dimensions.

    A component is called a centre, as in the recipes: `model.text.centres`.
    """

    weights: Tensor  # (centres,)
    locations: Tensor  # (centres, size)
    scales: Tensor  # (centres, size)
    laplacian: Tensor  # (centres, size), false for Gaussian

    def blocks(self, words: Tensor) -> tuple[Tensor, ...]:
        """Split words (words, size) into blocks small enough to be compared with all centres at once."""
        parts: tuple[Tensor, ...] = torch.split(words, max(_BLOCK_ELEMENTS // self.locations.numel(), 1))
        return parts

    def deviations(self, words: Tensor) -> Tensor:
        """(word - location) / scale: (words, centres, size)."""
        return (words.unsqueeze(1) - self.locations) / self.scales

    def log_joint(self, deviations: Tensor) -> Tensor:
        """The logarithm of w_k times the density of centre k: (words, centres)."""
        constant = torch.where(self.laplacian, _LOG_LAPLACIAN, _LOG_GAUSSIAN) + self.scales.log()  # (centres, size)
        distances = torch.where(self.laplacian, deviations.abs(), deviations.square() / 2).sum(2)
        return self.weights.log() - constant.sum(1) - distances


@dataclass(frozen=True)
class CountedWords:
    """The vectors of distinct words, their counts, and their order along each dimension, for medians."""

    vectors: Tensor  # (words, size), double
    counts: Tensor  # (words,), double
    order: Tensor  # (words, size)
    ordered: Tensor  # (words, size)

    @classmethod
    def from_vectors(cls, vectors: Tensor, counts: Tensor) -> CountedWords:
        """From vectors (words, size) and their counts (words,)."""
        ordered, order = vectors.double().sort(0)
        return cls(vectors.double(), counts.double(), order, ordered)

    def medians(self, weights: Tensor) -> Tensor:
        """The weighted median along each dimension: (size,). `weights` is (words,)."""
        below = weights[self.order].cumsum(0)  # (words, size)
        middle = (below < below[-1] / 2).sum(0, keepdim=True)
        return self.ordered.gather(0, middle)[0]

    def deviation(self) -> Tensor:
        """The standard deviation of all words along each dimension, (size,)."""
        share = self.counts / self.counts.sum()
        return (share @ (self.vectors - share @ self.vectors).square()).sqrt()


def fit_mixture(
    words: CountedWords,
    centres: int,
    *,
    hybrid: bool,
    iterations: int,
    seed: int,
    progress: ProgressCallback | None = None,
) -> Mixture:
    """Fit a GMM, or an HGLMM if `hybrid` is set; `progress` receives the iterations done and the maximum."""
    mixture = initial_mixture(words, centres, seed)
    previous = -math.inf
    for iteration in range(iterations):
        mixture, likelihood = em_step(mixture, words, hybrid=hybrid)
        if progress:
            progress(iteration + 1, iterations)
        if likelihood - previous < TOLERANCE:
            break
        previous = likelihood
    return mixture


def initial_mixture(words: CountedWords, centres: int, seed: int) -> Mixture:
    """Centres at distant words, drawn as by k-means++, with the deviation of all words as scale."""
    distinct = len(torch.unique(words.vectors, dim=0))
    if distinct < centres:
        raise RecipeError(
            f"model.text.centres = {centres}: the training texts have {distinct} distinct words with a vector; "
            f"set model.text.centres = {distinct} or less"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = [int(torch.multinomial(words.counts, 1, generator=generator))]
    nearest = torch.full_like(words.counts, math.inf)  # squared distance to the nearest centre
    while len(chosen) < centres:
        nearest = nearest.minimum((words.vectors - words.vectors[chosen[-1]]).square().sum(1))
        chosen.append(int(torch.multinomial(words.counts * nearest, 1, generator=generator)))
    scales = _floored(words.deviation(), words).expand(centres, -1).contiguous()
    weights = torch.full((centres,), 1 / centres, dtype=torch.float64)
    return Mixture(weights, words.vectors[chosen], scales, torch.zeros_like(scales, dtype=torch.bool))


def em_step(mixture: Mixture, words: CountedWords, *, hybrid: bool) -> tuple[Mixture, float]:
    """The mixture after one step of EM, and the mean log-likelihood per word before it."""
    joint = torch.cat([mixture.log_joint(mixture.deviations(part)) for part in mixture.blocks(words.vectors)])
    likelihood = float(words.counts @ joint.logsumexp(1) / words.counts.sum())
    weights = (joint.softmax(1) * words.counts.unsqueeze(1)).T.contiguous()  # (centres, words)
    totals = weights.sum(1)
    used = (totals > 0).unsqueeze(1)  # a centre without words stays where it is
    weights = weights / totals.clamp(min=torch.finfo(torch.float64).tiny).unsqueeze(1)
    locations, scales, likelihoods = _fit_gaussian(weights, words)
    laplacian = torch.zeros_like(locations, dtype=torch.bool)
    if hybrid:
        medians, spreads, laplacian_likelihoods = _fit_laplacian(weights, words)
        laplacian = laplacian_likelihoods > likelihoods
        locations, scales = torch.where(laplacian, medians, locations), torch.where(laplacian, spreads, scales)
    shares = (totals / totals.sum()).clamp(min=_MIN_WEIGHT)
    return Mixture(
        shares / shares.sum(),
        torch.where(used, locations, mixture.locations),
        torch.where(used, scales, mixture.scales),
        torch.where(used, laplacian, mixture.laplacian),
    ), likelihood


def _fit_gaussian(weights: Tensor, words: CountedWords) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, deviation and mean log-likelihood per centre and dimension; the weights of a centre sum to 1."""
    means = weights @ words.vectors
    variances = (weights @ words.vectors.square() - means.square()).clamp(min=0)
    scales = _floored(variances.sqrt(), words)
    return means, scales, -variances / scales.square() / 2 - scales.log() - _LOG_GAUSSIAN


def _fit_laplacian(weights: Tensor, words: CountedWords) -> tuple[Tensor, Tensor, Tensor]:
    """Median, mean absolute deviation and mean log-likelihood likewise; centre by centre, to limit memory."""
    medians = torch.stack([words.medians(each) for each in weights])
    pairs = zip(weights, medians, strict=True)
    spreads = torch.stack([each @ (words.vectors - median).abs() for each, median in pairs])
    scales = _floored(spreads, words)
    return medians, scales, -spreads / scales - scales.log() - _LOG_LAPLACIAN


def _floored(scales: Tensor, words: CountedWords) -> Tensor:
    """Scales with a lower bound relative to the deviation of all words, the same in all dimensions."""
    overall = float(words.deviation().square().mean().sqrt())
    return scales.clamp(min=max(FLOOR * overall, torch.finfo(torch.float32).eps))
