"""Photos as patches, for networks that read images of any shape (NaViT, as in SigLIP 2's NaFlex models).

A photo keeps its aspect ratio: it is resized to as many patches as fit into `most`. What a reader, a store or an export
passes on are squares of bytes, so the patches are packed row by row into a square, with free places behind them. The
last place of the square holds how many rows and columns of patches the photo has.

Reference: Tschannen et al. 2025, SigLIP 2, section 2.4; the search for the size is that of transformers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_TOLERANCE = 1e-5  # of the scale


def packed_side(patch: int, most: int) -> int:
    """The side of the square with room for `most` patches and their numbers, in pixels."""
    return patch * math.ceil(math.sqrt(most + 1))


def patch_grid(size: tuple[int, int], patch: int, most: int) -> tuple[int, int]:
    """The rows and columns of patches of a photo with this width and height.

    >>> patch_grid((640, 480), 16, 256)
    (14, 18)
    """
    low, high = _TOLERANCE / 10, 100.0

    def grid(scale: float) -> tuple[int, int]:
        width, height = (max(1, math.ceil(length * scale / patch)) for length in size)
        return height, width

    while high - low >= _TOLERANCE:
        middle = (low + high) / 2
        rows, columns = grid(middle)
        low, high = (middle, high) if rows * columns <= most else (low, middle)
    return grid(low)


def packed_patches(image: Image.Image, patch: int, most: int, method: Image.Resampling) -> NDArray[np.uint8]:
    """The patches of an RGB photo, packed into a square of bytes: (3, side, side)."""
    rows, columns = patch_grid(image.size, patch, most)
    pixels = np.asarray(image.resize((columns * patch, rows * patch), method))
    patches = pixels.reshape(rows, patch, columns, patch, 3).transpose(0, 2, 1, 3, 4).reshape(-1, patch, patch, 3)
    places = packed_side(patch, most) // patch
    packed = np.zeros((places * places, patch, patch, 3), np.uint8)
    packed[: len(patches)] = patches
    packed[-1, 0, 0, :2] = rows - 1, columns - 1
    square = packed.reshape(places, places, patch, patch, 3).transpose(4, 0, 2, 1, 3)
    return np.ascontiguousarray(square.reshape(3, places * patch, places * patch))
