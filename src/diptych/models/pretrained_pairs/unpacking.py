"""Unpacks the squares that `features.patches` packs: the patches of each photo, and how many rows and columns."""

from __future__ import annotations

import torch
from torch import Tensor


def packed_grids(squares: Tensor, patch: int) -> Tensor:
    """The rows and columns of patches of each packed square of bytes: (images, 2)."""
    corner = squares.shape[-1] - patch
    return squares[:, :2, corner, corner].long() + 1


def unpacked(values: Tensor, patch: int, most: int) -> Tensor:
    """The patches of packed squares, (images, 3, side, side): (images, most, patch * patch * 3)."""
    places = values.shape[-1] // patch
    patches = values.reshape(-1, 3, places, patch, places, patch).permute(0, 2, 4, 3, 5, 1)
    return patches.reshape(values.shape[0], places * places, -1)[:, :most]


def present_patches(grids: Tensor, most: int) -> Tensor:
    """Which of the places hold a patch: (images, most)."""
    return torch.arange(most, device=grids.device) < grids.prod(1, keepdim=True)
