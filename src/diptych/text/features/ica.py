"""Independent component analysis of word vectors.

Symmetric FastICA (Hyvarinen 1999) with the contrast log cosh. The vectors are centred and whitened to z; each row w of
an orthogonal matrix W is then updated by the fixed-point step

    w  <-  E[z tanh(w z)] - E[1 - tanh(w z)^2] w,        W  <-  (W W^T)^(-1/2) W

until no row changes its direction. Equal words have equal vectors, so expectations over all occurrences are those over
distinct words weighted by their counts: no sampling is needed to bound the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.errors import RecipeError

STEPS = 200
TOLERANCE = 1e-5  # of one minus the cosine between a row before and after a step
_RANK_TOLERANCE = 1e-10  # smaller variances, relative to the largest, are rounding errors


@dataclass(frozen=True)
class Unmixing:
    """Maps vectors to their independent components, which have mean 0 and variance 1 on the fitted vectors."""

    mean: Tensor  # (size,)
    matrix: Tensor  # (size, size)

    def __call__(self, vectors: Tensor) -> Tensor:
        """The components of vectors, (vectors, size)."""
        return (vectors - self.mean) @ self.matrix.T


def fit_ica(vectors: Tensor, counts: Tensor, seed: int = 0) -> Unmixing:
    """Fit as many components as the vectors (words, size) have dimensions; word i counts `counts[i]` times."""
    vectors, probabilities = vectors.double(), counts.double() / counts.sum()
    mean = probabilities @ vectors
    whitening = _whitening(vectors - mean, probabilities)
    whitened = (vectors - mean) @ whitening.T
    generator = torch.Generator().manual_seed(seed)
    size = vectors.shape[1]
    rotation = _orthogonal(torch.randn(size, size, dtype=torch.float64, generator=generator))
    for _ in range(STEPS):
        slopes = torch.tanh(whitened @ rotation.T)  # (words, components)
        curvature = 1 - probabilities @ slopes.square()  # (components,)
        updated = _orthogonal((slopes * probabilities.unsqueeze(1)).T @ whitened - curvature.unsqueeze(1) * rotation)
        change = 1 - (updated * rotation).sum(1).abs().min()
        rotation = updated
        if change < TOLERANCE:
            break
    return Unmixing(mean, rotation @ whitening)


def _whitening(centred: Tensor, probabilities: Tensor) -> Tensor:
    """The matrix that gives centred vectors variance 1 in every direction, (size, size)."""
    variances, directions = torch.linalg.eigh((centred * probabilities.unsqueeze(1)).T @ centred)
    rank = int((variances > _RANK_TOLERANCE * variances[-1]).sum())
    if rank < len(variances):
        raise RecipeError(
            f"model.text.ica: the words of the training texts have vectors of size {len(variances)} but rank {rank}: "
            "too few words for ICA; set model.text.ica = false"
        )
    whitening: Tensor = (directions / variances.sqrt()).T
    return whitening


def _orthogonal(matrix: Tensor) -> Tensor:
    """The orthogonal matrix nearest to this one, (M M^T)^(-1/2) M."""
    left, _, right = torch.linalg.svd(matrix)
    nearest: Tensor = left @ right
    return nearest
