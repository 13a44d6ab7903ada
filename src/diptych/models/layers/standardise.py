"""Standardises vectors: each entry minus its mean, divided by its standard deviation over the training set.

Pretrained networks give vectors whose entries are small and of very different scales. Layers after them train much
better on standardised entries. The statistics are measured once, before training, and belong to the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
