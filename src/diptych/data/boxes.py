"""Intersection over union of boxes: left, top, right, bottom, relative to the image.

Boxes are stored in single precision, so that an intersection over union of exactly 0.5 may come out a little below.
`upper_iou` is therefore what is compared with a threshold, in training as in evaluation: exactly the threshold is
enough.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.float32, np.float64)

# A relative coordinate is off by 2^-25 at most, a side by twice that, and an intersection over union of 0.3 or more,
# whose intersection may be a third as wide as the boxes, by at most this much times 1 / width + 1 / height.
_ROUNDING = 2.0**-22
_MOST = 1e-3  # for boxes of hardly any area, or none


def box_iou(boxes: NDArray[Number], others: NDArray[Number]) -> NDArray[Number]:
    """The intersection over union of all pairs: (..., boxes, 4) and (..., others, 4) to (..., boxes, others).

    It is 0 for two boxes without area.
    """
    boxes, others = boxes[..., :, None, :], others[..., None, :, :]
    top_left = np.maximum(boxes[..., :2], others[..., :2])
    bottom_right = np.minimum(boxes[..., 2:], others[..., 2:])
    intersections = (bottom_right - top_left).clip(0).prod(-1)
    areas, other_areas = ((each[..., 2:] - each[..., :2]).prod(-1) for each in (boxes, others))
    unions = areas + other_areas - intersections
    return np.asarray(intersections / np.maximum(unions, np.finfo(boxes.dtype).tiny))


def upper_iou(boxes: NDArray[Number], others: NDArray[Number]) -> NDArray[np.float64]:
    """The most that `box_iou` can have been before the boxes were rounded to single precision.

    >>> ten, seven = np.array([[[0, 0, 10, 9]], [[0, 0, 7, 9]]], np.float32) / 30
    >>> box_iou(seven, ten) >= 0.7, upper_iou(seven, ten) >= 0.7
    (array([[False]]), array([[ True]]))
    """
    exact, other = boxes.astype(np.float64), others.astype(np.float64)
    sides, other_sides = (each[..., 2:] - each[..., :2] for each in (exact, other))
    smaller = np.minimum(sides[..., :, None, :], other_sides[..., None, :, :])
    off = _ROUNDING * (1 / np.maximum(smaller, _ROUNDING)).sum(-1)
    return np.asarray(box_iou(exact, other) + np.minimum(off, _MOST))
