"""Fisher vectors: how a text's words would move a mixture's locations and scales.

With the posterior g_k of centre k for a word x, and the deviation z = (x - m) / s along one dimension of that centre,
the log-likelihood log p(x) of the mixture has the gradients

    Gaussian      by m:  g_k z / s          by s:  g_k (z^2 - 1) / s
    Laplacian     by m:  g_k sign(z) / s    by s:  g_k (|z| - 1) / s

The Fisher information of a parameter is the mean square of its gradient over words drawn from the mixture. Where each
word belongs to one centre (g_k is 0 or 1, as good as true in many dimensions), a part w_k of the words counts. It is
then w_k E[z^2] / s^2 = w_k / s^2 for a Gaussian's location, w_k E[(z^2 - 1)^2] / s^2 = 2 w_k / s^2 for its scale, and
w_k / s^2 for both parameters of a Laplacian, as E[sign(z)^2] = E[(|z| - 1)^2] = 1. The gradients divided by the root of
the information are

    Gaussian      g_k z / sqrt(w_k)           g_k (z^2 - 1) / sqrt(2 w_k)
    Laplacian     g_k sign(z) / sqrt(w_k)     g_k (|z| - 1) / sqrt(w_k)

A text's Fisher vector is the mean of its words', then the signed square root of each entry, then length one (Perronnin
et al. 2010; with Laplacians, Klein et al. 2015).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from diptych.text.features.mixtures import Mixture

_ROOTS_AT_ONCE = 64  # texts; few, so that several passes over them find them in the cache


def fisher_vectors(words: Tensor, begins: Tensor, vectors: Tensor, mixture: Mixture) -> Tensor:
    """The Fisher vectors of texts, (texts, 2 x centres x size): all locations, then all scales; zeros for no word.

    `words` are rows of `vectors`, one text after the other, and `begins` says where each text begins. What a word
    contributes is computed once for all the texts.
    """
    distinct, places = torch.unique(words, return_inverse=True)
    gradients = word_gradients(vectors[distinct], mixture)  # (distinct, 2 x centres x size)
    means = embedding_bag(places, gradients, begins, mode="mean")
    for part in torch.split(means, _ROOTS_AT_ONCE):
        magnitudes = part.abs()
        lengths = magnitudes.sum(1, keepdim=True).sqrt_()  # of the roots
        roots = magnitudes.sqrt_().div_(lengths.clamp_(min=torch.finfo(means.dtype).tiny))
        torch.copysign(roots, part, out=part)
    return means


def padded_fisher_vectors(ids: Tensor, found: Tensor, vectors: Tensor, mixture: Mixture) -> Tensor:
    """The same of padded ids, (texts, length), of which those that are `found` count; all words have one shape.

    An export needs it so. What a word contributes is computed as often as it occurs.
    """
    texts, length = ids.shape
    words = vectors[ids.flatten()]  # (texts x length, size)
    gradients = torch.stack(part_gradients(words, mixture), 1).flatten(1).view(texts, length, -1)
    kept = found[ids].to(vectors).unsqueeze(2)  # (texts, length, 1)
    means = (gradients * kept).sum(1) / kept.sum(1).clamp(min=1)
    magnitudes = means.abs()
    lengths = magnitudes.sum(1, keepdim=True).sqrt().clamp(min=torch.finfo(means.dtype).tiny)
    return means.sign() * magnitudes.sqrt() / lengths


def word_gradients(words: Tensor, mixture: Mixture) -> Tensor:
    """What each word (words, size) contributes: (words, 2 x centres x size)."""
    centres, size = mixture.locations.shape
    gradients = words.new_empty(len(words), 2, centres, size)
    done = 0
    for part in mixture.blocks(words):
        by_location, by_scale = gradients[done : done + len(part)].unbind(1)
        part_gradients(part, mixture, by_location, by_scale)
        done += len(part)
    return gradients.flatten(1)


def part_gradients(
    words: Tensor, mixture: Mixture, by_location: Tensor | None = None, by_scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of some words by location and by scale, each (words, centres, size), in new or in these tensors."""
    deviations = mixture.deviations(words)  # (words, centres, size)
    posteriors = mixture.log_joint(deviations).softmax(1) / mixture.weights.sqrt()  # (words, centres)
    distances = torch.where(mixture.laplacian, deviations.abs() - 1, (deviations.square() - 1) / math.sqrt(2))
    scaled = torch.mul(distances, posteriors.unsqueeze(2), out=by_scale)
    steps = torch.where(mixture.laplacian, deviations.sign(), deviations)
    return torch.mul(steps, posteriors.unsqueeze(2), out=by_location), scaled
