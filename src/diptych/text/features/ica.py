"""Independent component analysis of word vectors: directions along which words differ independently of each other.

FastICA (Hyvarinen 1999), symmetric, with the contrast log cosh. The vectors are centred and whitened to z; each row w
of an orthogonal matrix W is then moved by the fixed-point step

    w  <-  E[z tanh(w z)] - E[1 - tanh(w z)^2] w,        W  <-  (W W^T)^(-1/2) W

until no row turns any more. Equal words have equal vectors: expectations over many occurrences are those over distinct
words weighted by their counts, and no sample has to be drawn to bound the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.errors import RecipeError

STEPS = 200
TOLERANCE = 1e-5  # of the cosine between a row before a step and after it
_RANK = 1e-10  # variances below this part of the largest are none


@dataclass(frozen=True)
class Unmixing:
    """What takes vectors to their independent components, each of mean 0 and variance 1 on what it was fitted to."""

    mean: Tensor  # (size,)
    matrix: Tensor  # (size, size)

    def __call__(self, vectors: Tensor) -> Tensor:
        """The components of some vectors, (vectors, size)."""
        return (vectors - self.mean) @ self.matrix.T


def fit_ica(vectors: Tensor, counts: Tensor, seed: int = 0) -> Unmixing:
    """As many independent components as the vectors (words, size) have entries; word i counts `counts[i]` times."""
    vectors, share = vectors.double(), counts.double() / counts.sum()
    mean = share @ vectors
    whitening = _whitening(vectors - mean, share)
    whitened = (vectors - mean) @ whitening.T
    generator = torch.Generator().manual_seed(seed)
    size = vectors.shape[1]
    rotation = _orthogonal(torch.randn(size, size, dtype=torch.float64, generator=generator))
    for _ in range(STEPS):
        slopes = torch.tanh(whitened @ rotation.T)  # (words, components)
        curvature = 1 - share @ slopes.square()  # (components,)
        moved = _orthogonal((slopes * share.unsqueeze(1)).T @ whitened - curvature.unsqueeze(1) * rotation)
        turned = 1 - (moved * rotation).sum(1).abs().min()
        rotation = moved
        if turned < TOLERANCE:
            break
    return Unmixing(mean, rotation @ whitening)


def _whitening(centred: Tensor, share: Tensor) -> Tensor:
    """What takes centred vectors to variance 1 in every direction, (size, size)."""
    variances, directions = torch.linalg.eigh((centred * share.unsqueeze(1)).T @ centred)
    rank = int((variances > _RANK * variances[-1]).sum())
    if rank < len(variances):
        raise RecipeError(
            f"model.text.ica: the words of the training texts have vectors of size {len(variances)} and rank {rank} "
            "only, too few words for an ICA; set model.text.ica = false"
        )
    whitening: Tensor = (directions / variances.sqrt()).T
    return whitening


def _orthogonal(matrix: Tensor) -> Tensor:
    """The orthogonal matrix nearest to this one, (M M^T)^(-1/2) M."""
    left, _, right = torch.linalg.svd(matrix)
    nearest: Tensor = left @ right
    return nearest
