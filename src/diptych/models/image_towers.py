"""Image towers: what turns one image into one vector before the joint space."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from diptych.models.matcher import ImageInput


class StoredFeatures(nn.Module):
    """No network: the features were computed beforehand. Several regions an image are averaged."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.input = ImageInput("features", shape)
        self.size = shape[-1]

    def forward(self, features: Tensor) -> Tensor:
        """(images, size) or (images, regions, size) to (images, size)."""
        return features.mean(1) if features.dim() == 3 else features


class SmallCNN(nn.Module):
    """Five convolutions that train from scratch in minutes on a CPU.

    The last map is kept as a grid, not averaged: where a thing stands is part of what a text says.
    """

    def __init__(self, pixels: int, width: int) -> None:
        super().__init__()
        self.input = ImageInput("pixels", (3, pixels, pixels))
        channels = [3, width, 2 * width, 4 * width, 8 * width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(channels):
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers)
        side = -(-pixels // 16)
        self.size = channels[-1] * side * side

    def forward(self, pixels: Tensor) -> Tensor:
        """(images, 3, pixels, pixels) bytes to (images, size)."""
        scaled = (pixels.float() - 127.5) / 127.5
        grid: Tensor = self.layers(scaled.contiguous(memory_format=torch.channels_last))
        return grid.flatten(1)
