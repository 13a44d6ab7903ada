"""Intersection over union of boxes: left, top, right, bottom, relative to the image."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.float32, np.float64)


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
