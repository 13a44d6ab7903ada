"""Region proposals: boxes that may contain an object, found by OpenCV; needs the extra `regions`.

Proposals depend only on the photo. OpenCV returns the boxes of selective search in a random order, so they are sorted
here: boxes that overlap many others come first, because selective search finds a salient object again with several
colour spaces and scales.
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
from diptych.errors import DataError, DiptychError, RecipeError, one_line
from diptych.features.regions import Regions, forest_file
from diptych.optional import import_optional

LONGEST = 200  # pixels of the longer side: time grows with the area, and the cells of a map are larger anyway
SHORTEST = 16  # pixels of the shorter side: a thinner strip is widened
AGREEMENT = 0.5  # the intersection over union from which boxes count as the same object

_COMMAND = "pip install 'diptych[regions]'"
_WHOLE_PHOTO = (0.0, 0.0, 1.0, 1.0)

Boxes = NDArray[np.float64]
Propose = Callable[[Image.Image], Floats]


def proposer(regions: Regions) -> Propose:
    """A function from an RGB photo to boxes (count, 4): left, top, right, bottom, relative to the photo, best first.

    The first box is the whole photo. If there are fewer than `count`, the remaining rows are zeros. The function is
    safe to call from several threads.
    """
    if regions.method == "annotated":
        raise RecipeError("regions.method = 'annotated': annotated boxes are not proposals; use another method")
    cv2 = import_optional("cv2", _COMMAND, instead="a grid")
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
    """The whole photo, then the first relative boxes that are large enough and not near-duplicates of earlier ones."""
    large = ((boxes[:, 2:] - boxes[:, :2]) >= regions.smallest).all(1)
    candidates = np.concatenate([[_WHOLE_PHOTO], boxes[large]])
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
        search.setBaseImage(np.ascontiguousarray(pixels[:, :, ::-1]))  # OpenCV expects blue, green, red
        search.switchToSelectiveSearchFast()
        boxes = np.unique(_corners(search.process()), axis=0)  # sorted, so that OpenCV's order does not matter
        shared = box_iou(boxes, boxes)
        agreement = np.where(shared >= AGREEMENT, shared, 0).sum(1)
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
        search = cv2.ximgproc.createEdgeBoxes()  # has a state, so that threads cannot share it
        boxes, _ = search.getBoundingBoxes(forest.edgesNms(edges, angles), angles)  # best first
        return _corners(boxes)

    return find


def _corners(boxes: Any) -> Boxes:
    """OpenCV's boxes (left, top, width, height) as corners (left, top, right, bottom); an empty tuple is allowed."""
    found = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1)
