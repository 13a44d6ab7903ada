"""RoIAlign: the vector of a box, pooled from a map by bilinear sampling.

A box is divided into bins, each bin is sampled at evenly spaced points, and the vector is the mean of all samples (Mask
R-CNN, section 3, averaged over the bins). Cell i of n along an axis has its centre at (i + 1/2) / n; beyond the
outermost centres the map is continued by its border. The samples of a box form a lattice, so their mean has separate
weights for rows and columns, and all boxes of an image are one matrix product with its cells.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BINS = 7  # along a side
SAMPLES = 2  # along a side of a bin


def roi_align(maps: Tensor, boxes: Tensor, bins: int = BINS, samples: int = SAMPLES) -> Tensor:
    """(images, channels, rows, columns) and relative boxes (images, regions, 4) to (images, regions, channels).

    A box is left, top, right, bottom within 0 to 1. A box without area stands for no region and gets a zero vector.
    """
    left, top, right, bottom = boxes.unbind(2)  # (images, regions) each
    down = _weights(top, bottom, maps.shape[2], bins * samples)  # (images, regions, rows)
    across = _weights(left, right, maps.shape[3], bins * samples)  # (images, regions, columns)
    present = ((right > left) & (bottom > top))[:, :, None, None]
    weights = down[:, :, :, None] * across[:, :, None, :] * present  # (images, regions, rows, columns)
    return weights.flatten(2) @ maps.flatten(2).transpose(1, 2)


def pool_cells(cells: Tensor, boxes: Tensor) -> Tensor:
    """RoIAlign on the cells of a square map, row by row: (images, cells, channels)."""
    side = math.isqrt(cells.shape[1])
    maps = cells.transpose(1, 2).reshape(len(cells), -1, side, side)
    return roi_align(maps, boxes)


def _weights(first: Tensor, last: Tensor, cells: int, points: int) -> Tensor:
    """The weight of each cell along an axis in the mean of evenly spaced points from `first` to `last`."""
    steps = (torch.arange(points, device=first.device, dtype=first.dtype) + 0.5) / points
    positions = first[..., None] + (last - first)[..., None] * steps  # (images, regions, points)
    positions = (positions * cells - 0.5).clamp(0, cells - 1)
    centres = torch.arange(cells, device=first.device, dtype=first.dtype)
    return (1 - (positions[..., None] - centres).abs()).clamp(min=0).mean(2)
