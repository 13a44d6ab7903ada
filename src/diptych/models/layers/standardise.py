"""Standardises vectors: each entry minus its mean, divided by its standard deviation over the training set.

Pretrained networks give vectors whose entries are small and of very different scales. Layers after them train much
better on standardised entries. The statistics are measured once, before training, and belong to the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from diptych.models.layers.sets import present


class Standardise(nn.Module):
    """Returns vectors unchanged until `measured` has set the statistics."""

    mean: Tensor  # (size,)
    deviation: Tensor  # (size,)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def measured(self, mean: Tensor, deviation: Tensor) -> None:
        """Take over measured statistics, (size,) each; an entry that never changes is only centred."""
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, vectors: Tensor) -> Tensor:
        """Standardise (..., size)."""
        return (vectors - self.mean) / self.deviation


class Statistics:
    """The mean and the standard deviation of each entry of vectors that arrive in blocks."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._sums, self._squares = torch.zeros(2, size, dtype=torch.float64, device=device)
        self._count = 0

    def add(self, vectors: Tensor) -> None:
        """Add vectors, (vectors, size), or those of sets, (sets, places, size), whose empty places are zeros."""
        rows = (vectors if vectors.dim() == 2 else vectors[present(vectors)]).double()
        self._sums, self._squares = self._sums + rows.sum(0), self._squares + rows.square().sum(0)
        self._count += len(rows)

    def result(self) -> tuple[Tensor, Tensor]:
        """The mean and the standard deviation: (size,) each."""
        count = max(self._count, 1)
        mean = self._sums / count
        deviation = (self._squares / count - mean.square()).clamp(min=0).sqrt()
        return mean.float(), deviation.float()


@dataclass(frozen=True)
class Standardised:
    """A layer of a model that standardises what `encode` computes of images or of texts."""

    layer: Standardise
    encode: Callable[[Any], Tensor]
