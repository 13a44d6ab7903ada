"""A source of backbones: `example:tiny`, one convolution over patches, with fixed random weights.

A real source would load pretrained weights; random ones need no download.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.backbones import source

MEAN, DEVIATION = source.to_byte_scale((0.485, 0.456, 0.406)), source.to_byte_scale((0.229, 0.224, 0.225))


class Tiny(Backbone):
    """One convolution with a stride of 16 pixels."""

    side, size, grid = 32, 16, (4, 16)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.stem = nn.Conv2d(3, 16, 16, stride=16)

    def regions(self, pixels: Tensor) -> Tensor:
        """The cells of the map, row by row: (images, 4, 16)."""
        values: Tensor = self.stem(source.normalise(pixels, MEAN, DEVIATION)).relu()
        return values.flatten(2).transpose(1, 2)

    def forward(self, pixels: Tensor) -> Tensor:
        """The mean over the map: (images, 16)."""
        return self.regions(pixels).mean(1)


def build(name: str) -> Tiny:
    """Build the architecture with random weights."""
    if name != "example:tiny":
        raise RecipeError(f"backbone {name!r}: no such name; the source `example` has example:tiny")
    return Tiny(name)


def load(name: str, weights: Path | None = None) -> Tiny:
    """Load the weights of a safetensors file, by default the same random ones each time."""
    backbone = build(name)
    if weights is None:
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in backbone.parameters():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        return backbone
    try:
        backbone.load_state_dict(source.read_weights(weights))
    except RuntimeError as reason:
        raise source.weights_do_not_fit(name, weights, reason) from None
    return backbone
