"""Boxes: left, top, right, bottom, relative to the photo."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.float32, np.float64)


def box_iou(some: NDArray[Number], others: NDArray[Number]) -> NDArray[Number]:
    """The area that two boxes share, of the area that they cover: (..., some, 4) and (..., others, 4) to all pairs."""
    some, others = some[..., :, None, :], others[..., None, :, :]
    first = np.maximum(some[..., :2], others[..., :2])
    last = np.minimum(some[..., 2:], others[..., 2:])
    shared = (last - first).clip(0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (some, others)]
    covered = areas[0] + areas[1] - shared
    return np.asarray(shared / np.maximum(covered, np.finfo(some.dtype).tiny))
