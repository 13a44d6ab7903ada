"""Backbones: pretrained networks that turn pixels into feature vectors, loaded only when they are named.

One file of `backbones/` is one source of networks. A name is a short one (`lite0`, `resnet152`) or a source and the
source's own name (`timm:resnet50d`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from diptych.errors import RecipeError
from diptych.features.crops import Crops


class Backbone(nn.Module, ABC):
    """A network without its classifier: squares of bytes to a grid of regions, or to one vector.

    `name` is what a recipe calls it, `side` the square it reads, `size` the length of its vector, `grid` the shape
    (cells, channels) of its last map, (0, 0) where it has none. `any_side` says that it reads other squares as well.
    """

    name: str
    side: int
    size: int
    grid: tuple[int, int]
    any_side: bool = False

    @abstractmethod
    def regions(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to the cells of the last map, row by row: (images, cells, channels)."""

    @abstractmethod
    def forward(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to (images, size)."""


def side_of(crops: Crops, backbone: Backbone) -> int:
    """The side of a backbone's crops: its own, or another that was asked for and that it can read."""
    if crops.side in (None, backbone.side):
        return backbone.side
    if not backbone.any_side:
        raise RecipeError(f"side = {crops.side}: {backbone.name} reads squares of {backbone.side} only; leave it out")
    return crops.side


@torch.inference_mode()
def grid_of(crops: Crops, backbone: Backbone) -> tuple[int, int]:
    """The shape (cells, channels) of a backbone's last map of these crops; the backbone is in evaluation mode."""
    side = side_of(crops, backbone)
    if side == backbone.side:
        return backbone.grid
    nothing = torch.zeros(1, 3, side, side, dtype=torch.uint8, device=next(backbone.parameters()).device)
    _, cells, channels = backbone.regions(nothing).shape
    return cells, channels


@torch.no_grad()
def weights_digest(backbone: nn.Module) -> str:
    """What identifies a network's weights: a hash of every parameter and statistic with its name."""
    digest = hashlib.sha256()
    for name, tensor in backbone.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
