"""Fisher vectors: the gradient of a mixture's log-likelihood by its locations and scales, averaged over a text's words.

With the posterior g_k of centre k for a word x, and the deviation z = (x - m) / s along one dimension of that centre,
the log-likelihood log p(x) of the mixture has the gradients

    Gaussian      by m:  g_k z / s          by s:  g_k (z^2 - 1) / s
    Laplacian     by m:  g_k sign(z) / s    by s:  g_k (|z| - 1) / s

The Fisher information of a parameter is the mean square of its gradient over words drawn from the mixture. If each word
belongs to one centre (g_k is 0 or 1, nearly true in many dimensions), the share w_k of the words contributes. It is
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

_TEXTS_PER_BLOCK = 64  # few enough that several passes find them in the cache


def fisher_vectors(ids: Tensor, offsets: Tensor, vectors: Tensor, mixture: Mixture) -> Tensor:
    """The Fisher vectors of texts, (texts, 2 x centres x size): locations, then scales; zeros for a text without words.

    `ids` has the rows of `vectors` of all texts, and `offsets` the start of each text in it, as for `embedding_bag`.
    The gradients of a word are computed once for all texts.
    """
    distinct, inverse = torch.unique(ids, return_inverse=True)
    gradients = word_gradients(vectors[distinct], mixture)  # (distinct, 2 x centres x size)
    means = embedding_bag(inverse, gradients, offsets, mode="mean")
    for part in torch.split(means, _TEXTS_PER_BLOCK):
        magnitudes = part.abs()
        lengths = magnitudes.sum(1, keepdim=True).sqrt_()  # of the roots
        roots = magnitudes.sqrt_().div_(lengths.clamp_(min=torch.finfo(means.dtype).tiny))
        torch.copysign(roots, part, out=part)
    return means


def padded_fisher_vectors(ids: Tensor, found: Tensor, vectors: Tensor, mixture: Mixture) -> Tensor:
    """The same for padded ids, (texts, length), with static shapes, as an ONNX export needs; `found` flags known ids.

    The gradients of a word are computed for each of its occurrences.
    """
    texts, length = ids.shape
    words = vectors[ids.flatten()]  # (texts x length, size)
    gradients = torch.stack(_block_gradients(words, mixture), 1).flatten(1).view(texts, length, -1)
    kept = found[ids].to(vectors).unsqueeze(2)  # (texts, length, 1)
    means = (gradients * kept).sum(1) / kept.sum(1).clamp(min=1)
    magnitudes = means.abs()
    lengths = magnitudes.sum(1, keepdim=True).sqrt().clamp(min=torch.finfo(means.dtype).tiny)
    return means.sign() * magnitudes.sqrt() / lengths


def word_gradients(words: Tensor, mixture: Mixture) -> Tensor:
    """The normalised gradients of each word (words, size): (words, 2 x centres x size)."""
    centres, size = mixture.locations.shape
    gradients = words.new_empty(len(words), 2, centres, size)
    done = 0
    for block in mixture.blocks(words):
        by_location, by_scale = gradients[done : done + len(block)].unbind(1)
        _block_gradients(block, mixture, by_location, by_scale)
        done += len(block)
    return gradients.flatten(1)


def _block_gradients(
    words: Tensor, mixture: Mixture, by_location: Tensor | None = None, by_scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients by location and by scale, each (words, centres, size), written to the given tensors, if any."""
    deviations = mixture.deviations(words)  # (words, centres, size)
    posteriors = mixture.log_joint(deviations).softmax(1) / mixture.weights.sqrt()  # (words, centres)
    distances = torch.where(mixture.laplacian, deviations.abs() - 1, (deviations.square() - 1) / math.sqrt(2))
    scaled = torch.mul(distances, posteriors.unsqueeze(2), out=by_scale)
    steps = torch.where(mixture.laplacian, deviations.sign(), deviations)
    return torch.mul(steps, posteriors.unsqueeze(2), out=by_location), scaled
