"""Mixtures of centres that word vectors are thought to be drawn from, fitted by expectation maximisation.

A centre k has a weight w_k, and along each dimension d a location m and a scale s. A dimension is Gaussian or
Laplacian,

    log g(x) = -(x - m)^2 / (2 s^2) - log s - log(2 pi) / 2
    log l(x) = -|x - m| / s - log s - log 2

and p(x) = sum_k w_k prod_d (g or l). In a GMM all dimensions are Gaussian. In an HGLMM (Klein et al. 2015) each
dimension of each centre is whichever of the two fits better: each step takes for the Gaussian the weighted mean and
deviation, for the Laplacian the weighted median and mean absolute deviation, and keeps the one under which the words,
weighted by the centre's posterior, are likelier. That maximises what EM has to maximise, so the likelihood never falls.

Equal words have equal vectors: all is computed on distinct words weighted by their counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.errors import RecipeError

TOLERANCE = 1e-4  # of the mean log-likelihood of a word: a step that gains less is the last
FLOOR = 0.05  # the least scale, as a part of the deviation of all words: a centre of one word would have none
_LEAST_WEIGHT = 1e-10
_AT_ONCE = 1 << 18  # words x centres x dimensions in one block
_LOG_GAUSSIAN, _LOG_LAPLACIAN = math.log(2 * math.pi) / 2, math.log(2)


@dataclass(frozen=True)
class Mixture:
    """The weight of each centre, and the location, the scale and the kind of each of its dimensions."""

    weights: Tensor  # (centres,)
    locations: Tensor  # (centres, size)
    scales: Tensor  # (centres, size)
    laplacian: Tensor  # (centres, size), Gaussian where false

    def blocks(self, words: Tensor) -> tuple[Tensor, ...]:
        """Words (words, size) in parts that can be compared with all centres at once."""
        parts: tuple[Tensor, ...] = torch.split(words, max(_AT_ONCE // self.locations.numel(), 1))
        return parts

    def deviations(self, words: Tensor) -> Tensor:
        """How far each word is from each location, in scales: (words, centres, size)."""
        return (words.unsqueeze(1) - self.locations) / self.scales

    def log_joint(self, deviations: Tensor) -> Tensor:
        """The logarithm of w_k times the density of centre k: (words, centres)."""
        constant = torch.where(self.laplacian, _LOG_LAPLACIAN, _LOG_GAUSSIAN) + self.scales.log()  # (centres, size)
        distances = torch.where(self.laplacian, deviations.abs(), deviations.square() / 2).sum(2)
        return self.weights.log() - constant.sum(1) - distances


@dataclass(frozen=True)
class CountedWords:
    """Distinct words, how often each occurs, and their order along each dimension, which medians need."""

    vectors: Tensor  # (words, size), double
    counts: Tensor  # (words,), double
    order: Tensor  # (words, size)
    ordered: Tensor  # (words, size)

    @classmethod
    def from_vectors(cls, vectors: Tensor, counts: Tensor) -> CountedWords:
        """Vectors (words, size) with the number of their occurrences (words,)."""
        ordered, order = vectors.double().sort(0)
        return cls(vectors.double(), counts.double(), order, ordered)

    def medians(self, weights: Tensor) -> Tensor:
        """The median along each dimension of words with these weights (words,): (size,)."""
        below = weights[self.order].cumsum(0)  # (words, size)
        middle = (below < below[-1] / 2).sum(0, keepdim=True)
        return self.ordered.gather(0, middle)[0]

    def deviation(self) -> Tensor:
        """The deviation of all words along each dimension, (size,)."""
        share = self.counts / self.counts.sum()
        return (share @ (self.vectors - share @ self.vectors).square()).sqrt()


def fit_mixture(
    words: CountedWords,
    centres: int,
    *,
    hybrid: bool,
    iterations: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Mixture:
    """Fit a GMM, or an HGLMM if `hybrid` is set; `progress` receives the iterations done and the maximum."""
    mixture = start_mixture(words, centres, seed)
    before = -math.inf
    for iteration in range(iterations):
        mixture, likelihood = improved(mixture, words, hybrid=hybrid)
        if progress:
            progress(iteration + 1, iterations)
        if likelihood - before < TOLERANCE:
            break
        before = likelihood
    return mixture


def start_mixture(words: CountedWords, centres: int, seed: int) -> Mixture:
    """Centres at words that are far from each other, drawn as k-means++ does, each as wide as all words are."""
    different = len(torch.unique(words.vectors, dim=0))
    if different < centres:
        raise RecipeError(
            f"model.text.centres = {centres}: the training texts have {different} distinct words with a vector; "
            f"set model.text.centres = {different} or less"
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


def improved(mixture: Mixture, words: CountedWords, *, hybrid: bool) -> tuple[Mixture, float]:
    """The mixture after one step of EM, and the mean log-likelihood of a word's occurrence before it."""
    joint = torch.cat([mixture.log_joint(mixture.deviations(part)) for part in mixture.blocks(words.vectors)])
    likelihood = float(words.counts @ joint.logsumexp(1) / words.counts.sum())
    weights = (joint.softmax(1) * words.counts.unsqueeze(1)).T.contiguous()  # (centres, words)
    totals = weights.sum(1)
    alive = (totals > 0).unsqueeze(1)  # a centre that no word belongs to stays where it is
    weights = weights / totals.clamp(min=torch.finfo(torch.float64).tiny).unsqueeze(1)
    locations, scales, fits = _gaussian(weights, words)
    laplacian = torch.zeros_like(locations, dtype=torch.bool)
    if hybrid:
        medians, spreads, others = _laplacian(weights, words)
        laplacian = others > fits
        locations, scales = torch.where(laplacian, medians, locations), torch.where(laplacian, spreads, scales)
    shares = (totals / totals.sum()).clamp(min=_LEAST_WEIGHT)
    return Mixture(
        shares / shares.sum(),
        torch.where(alive, locations, mixture.locations),
        torch.where(alive, scales, mixture.scales),
        torch.where(alive, laplacian, mixture.laplacian),
    ), likelihood


def _gaussian(weights: Tensor, words: CountedWords) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, deviation and mean log-likelihood of each dimension of each centre under weights that sum to one."""
    means = weights @ words.vectors
    variances = (weights @ words.vectors.square() - means.square()).clamp(min=0)
    scales = _floored(variances.sqrt(), words)
    return means, scales, -variances / scales.square() / 2 - scales.log() - _LOG_GAUSSIAN


def _laplacian(weights: Tensor, words: CountedWords) -> tuple[Tensor, Tensor, Tensor]:
    """Median, mean absolute deviation and mean log-likelihood likewise; centre by centre, to bound the memory."""
    medians = torch.stack([words.medians(each) for each in weights])
    pairs = zip(weights, medians, strict=True)
    spreads = torch.stack([each @ (words.vectors - median).abs() for each, median in pairs])
    scales = _floored(spreads, words)
    return medians, scales, -spreads / scales - scales.log() - _LOG_LAPLACIAN


def _floored(scales: Tensor, words: CountedWords) -> Tensor:
    """Scales no smaller than a part of the deviation of all words, the same in all dimensions."""
    overall = float(words.deviation().square().mean().sqrt())
    return scales.clamp(min=max(FLOOR * overall, torch.finfo(torch.float32).eps))
