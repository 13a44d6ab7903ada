"""Backbones that take no time: one without layers, and one with a few."""

import torch
from torch import nn

from diptych.features.backbone import Backbone


class TinyBackbone(Backbone):
    """The mean and the largest value of each colour in every cell of 8 x 8 pixels.

    `batches` lists the number of squares in each forward pass.
    """

    name, side, size, grid, any_side = "tiny", 32, 6, (16, 6), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))
        self.batches = []

    @property
    def shown(self):
        """The number of squares seen so far."""
        return sum(self.batches)

    def regions(self, pixels):
        self.batches.append(len(pixels))
        cells = (pixels.float() * self.scale).unfold(2, 8, 8).unfold(3, 8, 8).flatten(4)
        return torch.cat([cells.mean(4), cells.amax(4)], 1).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class LayeredBackbone(TinyBackbone):
    """A backbone with a matrix and with blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)) for _ in range(3))
        self.norm = nn.LayerNorm(6)

    def forward(self, pixels):
        values = super().forward(pixels)
        for block in self.blocks:
            values = values + block(values)
        return self.norm(values)
