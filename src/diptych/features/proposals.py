"""Region proposals: boxes of a photo that may hold a thing, by OpenCV; needs the extra `regions`.

They depend on the photo alone. OpenCV gives selective search's boxes in an order drawn from the C library's random
numbers, so they are put in an order of our own: first those that many others nearly agree with, which is what merging
by several colours and sizes finds again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.boxes import box_iou
from diptych.data.corpus import Floats
from diptych.errors import DataError, DiptychError, RecipeError
from diptych.features.backbones.source import import_source, one_line
from diptych.features.regions import Regions, forest_file

LONGEST = 200  # pixels of the photo's longer side: the time grows with the area, the map's cells are larger anyway
SHORTEST = 16  # a strip is widened to this: there is nothing to find within a pixel or two
AGREEING = 0.5  # the overlap from which on boxes speak for each other

_COMMAND = "pip install 'diptych[regions]'"
_WHOLE = (0.0, 0.0, 1.0, 1.0)

Boxes = NDArray[np.float64]
Propose = Callable[[Image.Image], Floats]


def proposer(regions: Regions) -> Propose:
    """What makes an RGB photo's boxes, (count, 4): left, top, right, bottom, relative to the photo, best first.

    The first box is the whole photo. Where there are fewer than `count`, rows of zeros follow. Safe to call from
    several threads.
    """
    if regions.method == "annotated":
        raise RecipeError("regions.method = 'annotated': boxes that came with the data are no proposals; use another")
    cv2 = import_source("cv2", _COMMAND, instead="a grid")
    if not hasattr(cv2, "ximgproc"):
        raise DiptychError(f"this OpenCV has no contributed modules; uninstall opencv-python, then run: {_COMMAND}")
    forest = forest_file(regions)
    find = _selective_search(cv2) if forest is None else _edge_boxes(cv2, forest)

    def propose(photo: Image.Image) -> Floats:
        scale = LONGEST / max(photo.size)
        width, height = (max(SHORTEST, round(length * scale)) for length in photo.size)
        small = photo.resize((width, height), Image.Resampling.BILINEAR)
        boxes = find(np.asarray(small)) / (width, height, width, height)
        chosen = best_boxes(boxes.clip(0, 1), regions)
        out = np.zeros((regions.count, 4), np.float32)
        out[: len(chosen)] = chosen
        return out

    return propose


def best_boxes(boxes: Boxes, regions: Regions) -> Boxes:
    """The whole photo, then the first of these relative boxes that are neither tiny nor nearly another one's."""
    large = ((boxes[:, 2:] - boxes[:, :2]) >= regions.smallest).all(1)
    candidates = np.concatenate([[_WHOLE], boxes[large]])
    kept = [0]
    for number in range(1, len(candidates)):
        if len(kept) == regions.count:
            break
        if box_iou(candidates[number : number + 1], candidates[kept]).max() <= regions.overlap:
            kept.append(number)
    return candidates[kept]


def _selective_search(cv2: Any) -> Callable[[NDArray[np.uint8]], Boxes]:
    def find(pixels: NDArray[np.uint8]) -> Boxes:
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
        search.setBaseImage(np.ascontiguousarray(pixels[:, :, ::-1]))  # OpenCV's colours are blue, green, red
        search.switchToSelectiveSearchFast()
        boxes = np.unique(_corners(search.process()), axis=0)  # in an order that does not depend on OpenCV's
        shared = box_iou(boxes, boxes)
        agreement = np.where(shared >= AGREEING, shared, 0).sum(1)
        return boxes[np.argsort(-agreement.round(6), kind="stable")]

    return find


def _edge_boxes(cv2: Any, model: Path) -> Callable[[NDArray[np.uint8]], Boxes]:
    try:
        forest = cv2.ximgproc.createStructuredEdgeDetection(str(model))
    except cv2.error as reason:
        raise DataError(f"{model}: not a structured forest of OpenCV ({one_line(reason)})") from None

    def find(pixels: NDArray[np.uint8]) -> Boxes:
        edges = forest.detectEdges(pixels.astype(np.float32) / 255)
        angles = forest.computeOrientation(edges)
        search = cv2.ximgproc.createEdgeBoxes()  # it has a state: one for each call
        boxes, _ = search.getBoundingBoxes(forest.edgesNms(edges, angles), angles)  # best first
        return _corners(boxes)

    return find


def _corners(boxes: Any) -> Boxes:
    """OpenCV's boxes, (left, top, width, height) each, by their corners; it gives an empty tuple where it has none."""
    found = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1)
