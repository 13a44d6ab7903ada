"""A small CNN that is trained from scratch."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from diptych.features.image_input import ImageInput
from diptych.models.layers.precision import normalize
from diptych.models.tower import ImageTower, ImageTowerSettings
from diptych.settings import Count, Flag


class CNNSettings(ImageTowerSettings):
    """Images as pixels, through a small CNN trained from scratch; `normalise` divides its vectors by their lengths."""

    name: Literal["cnn"] = "cnn"
    pixels: Annotated[int, Field(ge=16, le=512, strict=True)] = 64
    width: Count = 32
    normalise: Flag = False

    def build(self) -> SmallCNN:
        """A tower with random weights."""
        return SmallCNN(self)


class SmallCNN(ImageTower):
    """Four convolutions that train from scratch in minutes on a CPU.

    The last map stays a grid and is not averaged, because texts also describe where things are.
    """

    def __init__(self, settings: CNNSettings) -> None:
        super().__init__()
        self.input = ImageInput("pixels", (3, settings.pixels, settings.pixels))
        self.normalise = settings.normalise
        channels = [3, *(factor * settings.width for factor in (1, 2, 4, 8))]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(channels):
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers)
        side = -(-settings.pixels // 16)
        self.size = channels[-1] * side * side

    def forward(self, images: Tensor) -> Tensor:
        """Encode (images, 3, pixels, pixels) bytes: (images, size)."""
        scaled = (images.float() - 127.5) / 127.5
        grid: Tensor = self.layers(scaled.contiguous(memory_format=torch.channels_last))
        vectors = grid.flatten(1)
        return normalize(vectors, dim=1) if self.normalise else vectors
