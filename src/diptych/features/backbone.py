"""What a backbone is: a pretrained network that turns pixels into feature vectors.

Each module in `backbones/` is one source of networks; `backbones.registry` finds a network by its name.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from diptych.errors import RecipeError
from diptych.features.crops import Crops


class Backbone(nn.Module, ABC):
    """A network without its classifier, from squares of bytes to one vector or to a grid of regions."""

    name: str  # in recipes
    side: int  # of the square that it reads
    size: int  # of its vector
    grid: tuple[int, int]  # the shape (cells, channels) of its last map; (0, 0) if it has none
    any_side: bool = False  # whether it reads squares of other sides, too

    @abstractmethod
    def regions(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to the cells of the last map, row by row: (images, cells, channels)."""

    @abstractmethod
    def forward(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to (images, size)."""

    @property
    def steps(self) -> Sequence[nn.Module]:
        """The modules that run one after another up to the last map; empty if the network is not such a sequence."""
        return ()

    def begin(self, pixels: Tensor, steps: int) -> Tensor:
        """What the first `steps` steps compute: (images, 3, side, side) bytes to a map, (images, channels, ...)."""
        raise NotImplementedError(f"{self.name} is not a sequence of steps")

    def finish(self, maps: Tensor, steps: int) -> Tensor:
        """The vectors, (images, size), from what the first `steps` steps have computed."""
        raise NotImplementedError(f"{self.name} is not a sequence of steps")


def crop_side(crops: Crops, backbone: Backbone) -> int:
    """The side of the crops in pixels, by default the backbone's; raises RecipeError if it cannot read them."""
    if crops.side in (None, backbone.side):
        return backbone.side
    if not backbone.any_side:
        raise RecipeError(f"side = {crops.side}: {backbone.name} reads squares of {backbone.side} only; leave it out")
    return crops.side


@torch.inference_mode()
def grid_shape(crops: Crops, backbone: Backbone) -> tuple[int, int]:
    """The shape (cells, channels) of the last map for these crops; the backbone must be in evaluation mode."""
    side = crop_side(crops, backbone)
    if side == backbone.side:
        return backbone.grid
    pixels = torch.zeros(1, 3, side, side, dtype=torch.uint8, device=next(backbone.parameters()).device)
    _, cells, channels = backbone.regions(pixels).shape
    return cells, channels


@torch.no_grad()
def weights_digest(network: nn.Module) -> str:
    """The SHA-256 digest of a network's parameters and buffers, with their names."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
