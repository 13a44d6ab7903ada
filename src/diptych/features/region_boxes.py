"""Where the regions of pictures lie: proposed from the pixels, annotated in the data, or cells of a grid.

A box is left, top, right, bottom, relative to the photo. A row of zeros stands for no region.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np
from PIL import Image

from diptych.data.corpus import Corpus, Floats, Picture
from diptych.errors import ImageError
from diptych.features import proposals
from diptych.features.backbone import Backbone, grid_shape
from diptych.features.crops import Crops, load_for_crops
from diptych.features.image_input import ImageInput, pictures_of
from diptych.features.regions import Regions, grid_boxes


class BoxSource(Protocol):
    """Gives the boxes of pictures while their features are extracted."""

    def prepare(self, regions: Regions | None) -> None:
        """Load what finding the boxes needs; called once, and only if there are features to compute."""
        ...

    def key(self, image: int, digest: str) -> str:
        """The key of the picture's row in a feature store, made from the hash of the picture."""
        ...

    def boxes(self, image: int, decoded: Image.Image) -> Floats | None:
        """The boxes of a decoded picture, (regions, 4); None if its regions are no boxes."""
        ...


class ProposedBoxes:
    """Boxes that are found in the pixels, if the regions are proposed at all."""

    def __init__(self) -> None:
        self._propose: proposals.Propose | None = None

    def prepare(self, regions: Regions | None) -> None:
        """Load the proposer, if the regions need one."""
        if regions is not None and regions.are_boxes:
            self._propose = proposals.proposer(regions)

    def key(self, image: int, digest: str) -> str:
        """The hash of the picture."""
        return digest

    def boxes(self, image: int, decoded: Image.Image) -> Floats | None:
        """The proposed boxes, (regions, 4)."""
        return None if self._propose is None else self._propose(decoded)


class AnnotatedBoxes:
    """Boxes that came with the data: (pictures, regions, 4)."""

    def __init__(self, boxes: Floats) -> None:
        self._boxes = np.ascontiguousarray(boxes, np.float32)

    def prepare(self, regions: Regions | None) -> None:
        """Do nothing: the boxes are known."""

    def key(self, image: int, digest: str) -> str:
        """The hash of the picture together with its boxes."""
        return hashlib.sha256(digest.encode() + self._boxes[image].tobytes()).hexdigest()

    def boxes(self, image: int, decoded: Image.Image) -> Floats | None:
        """The annotated boxes, (regions, 4)."""
        annotated: Floats = self._boxes[image]
        return annotated


def region_boxes(corpus: Corpus, image_input: ImageInput, backbone: Backbone | None) -> Floats | None:
    """The boxes of the regions that a model reads, (images, regions, 4); None if they are unknown.

    Proposals are computed again, which takes a fraction of a second per photo.
    """
    if image_input.kind == "features":
        return None if corpus.region_boxes is None else corpus.region_boxes[np.arange(len(corpus.image_ids))]
    if image_input.regions is None or image_input.crops is None or backbone is None or not image_input.reads_map:
        return None
    side = image_input.shape[-1]
    if image_input.regions.are_boxes:
        return _proposed_boxes(pictures_of(corpus), image_input.regions, image_input.crops, side)
    cells, _ = grid_shape(image_input.crops, backbone)
    return np.repeat(grid_boxes(cells, image_input.crops, side)[None], len(corpus.image_ids), axis=0)


def _proposed_boxes(pictures: Sequence[Picture], regions: Regions, crops: Crops, side: int) -> Floats:
    """The proposed boxes, (pictures, regions, 4); zeros for a picture that cannot be read."""
    propose = proposals.proposer(regions)
    boxes = np.zeros((len(pictures), regions.count, 4), np.float32)
    for row, picture in zip(boxes, pictures, strict=True):
        with suppress(ImageError):
            row[:] = propose(load_for_crops(picture, crops, side))
    return boxes
