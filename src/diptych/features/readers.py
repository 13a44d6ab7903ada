"""What an image tower reads of a corpus: stored features, small squares of pixels, or crops for a backbone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Corpus, Floats, Integers, Picture
from diptych.data.images import PictureFile, decode
from diptych.data.reader import Draw, FeatureReader, ImageReader, PixelReader
from diptych.errors import DataError, ImageError
from diptych.features.backbone import Backbone
from diptych.features.choices import RandomCrop
from diptych.features.crops import Crops, fixed_crops, random_crop, random_window, resized_side, too_small
from diptych.features.proposals import proposer
from diptych.features.regions import Regions
from diptych.features.roi_align import pool_cells


@dataclass(frozen=True)
class ImageInput:
    """What an image tower reads.

    `pixels`: squares of this shape as bytes; `features`: stored vectors of this shape; `crops`: the crops of an image,
    each of this shape as bytes, of which a backbone makes one vector or, where there are `regions`, several.
    """

    kind: Literal["pixels", "features", "crops"]
    shape: tuple[int, ...]
    crops: Crops | None = None
    regions: Regions | None = None


class CropReader:
    """The crops of each image, decoded each time: (images, crops, 3, side, side) bytes.

    With `random` set it is one random crop (`RC`) or window, a pure function of the file and the draw; otherwise the
    fixed ones. `enlarged` holds the images read so far that are smaller than the crop, with width and height.
    """

    def __init__(self, pictures: Sequence[Picture], crops: Crops, side: int, random: RandomCrop | None = None) -> None:
        self._pictures, self._crops, self._side, self._random = pictures, crops, side, random
        self.skipped: dict[int, str] = {}
        self.enlarged: dict[int, tuple[int, int]] = {}

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The crops of the readable ones among these images, and which those are."""
        count = 1 if self._random else self._crops.count
        rows = np.empty((len(images), count, 3, self._side, self._side), np.uint8)
        readable = np.ones(len(images), bool)
        for row, image in enumerate(images.tolist()):
            try:
                if image in self.skipped:  # what failed once stays out: who is in a batch must not depend on luck
                    readable[row] = False
                else:
                    rows[row] = self._crop(image, draw)
            except ImageError as reason:
                self.skipped[image] = str(reason)
                readable[row] = False
        return (rows if readable.all() else rows[readable]), readable

    def _crop(self, image: int, draw: Draw) -> NDArray[np.uint8]:
        picture = self._pictures[image]
        # A window of the photo itself needs its pixels; a window of the resized photo does not.
        itself = (self._random, self._crops.resize) == ("RC", "short")
        photo = picture.load() if itself else _decoded(picture, self._side)
        if too_small(photo.size, self._side):
            self.enlarged[image] = photo.size
        if self._random is None:
            return fixed_crops(photo, self._crops, self._side)
        draw_crop = random_crop if self._random == "RC" else random_window
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*draw, image])))
        return draw_crop(photo, self._crops.resize, self._side, random)[None]


class ProposalReader:
    """The proposed regions of each image, found and pooled from a frozen backbone's map each time.

    Gives (images, regions, channels) floats, as a store does. `boxes`, (pictures, regions, 4), are found with them:
    left, top, right, bottom, relative to the photo; zeros for a picture that was not read yet.
    """

    def __init__(self, pictures: Sequence[Picture], wanted: ImageInput, backbone: Backbone) -> None:
        assert wanted.crops is not None and wanted.regions is not None
        self._pictures, self._crops, self._side = pictures, wanted.crops, wanted.shape[-1]
        self._count, self._backbone = wanted.regions.count, backbone
        self._propose = proposer(wanted.regions)
        self.boxes: Floats = np.zeros((len(pictures), self._count, 4), np.float32)
        self.skipped: dict[int, str] = {}

    @torch.inference_mode()
    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The regions of the readable ones among these images, and which those are."""
        squares = [np.empty((0, 3, self._side, self._side), np.uint8)]
        readable = np.zeros(len(images), bool)
        for row, image in enumerate(images.tolist()):
            try:
                if image not in self.skipped:  # what failed once stays out
                    photo = _decoded(self._pictures[image], self._side)
                    squares.append(fixed_crops(photo, self._crops, self._side))
                    self.boxes[image] = self._propose(photo)
                    readable[row] = True
            except ImageError as reason:
                self.skipped[image] = str(reason)
        return self._pooled(np.concatenate(squares), self.boxes[images[readable]]), readable

    def _pooled(self, squares: NDArray[np.uint8], boxes: Floats) -> Floats:
        if not len(squares):
            return np.empty((0, self._count, self._backbone.grid[1]), np.float32)
        device = next(self._backbone.parameters()).device
        cells = self._backbone.regions(torch.from_numpy(squares).to(device))
        return np.asarray(pool_cells(cells, torch.from_numpy(boxes).to(device)).cpu().numpy())


class RegionReader:
    """Stored regions; an image of which none is there is left out with the reason, as one that cannot be read is.

    `empty` holds those that could be read and have no regions.
    """

    def __init__(self, stored: FeatureReader, image_ids: Sequence[str]) -> None:
        self._stored, self._ids = stored, image_ids
        self.skipped = stored.skipped
        self.empty: set[int] = set()

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The regions of those among these images that have some, and which those are."""
        values, readable = self._stored.read(images, draw)
        has: NDArray[np.bool_] = np.asarray(
            values[:, 0].any(1)
        )  # the first region is nearly always there, and looking at all takes time
        if not has.all():
            has[~has] = values[~has].any((1, 2))
        if has.all():
            return values, readable
        for image in images[readable][~has].tolist():
            self.empty.add(image)
            self.skipped[image] = (
                f"{self._ids[image]}: has no regions, all of its rows are zeros; compute them again, or leave it out"
            )
        readable[readable] = has
        return values[has], readable


def image_reader(corpus: Corpus, wanted: ImageInput, backbone: Backbone | None = None) -> ImageReader:
    """The reader of what a model's image input asks for; a corpus that does not have it is an error.

    Proposed regions need the model's backbone.
    """
    if wanted.kind == "features":
        if corpus.features is None:
            raise DataError(f"{corpus.name}: has pictures, and the run reads features that came with its data")
        if corpus.features.shape != wanted.shape:
            raise DataError(f"{corpus.name}: features of shape {corpus.features.shape}, the model reads {wanted.shape}")
        stored = FeatureReader(corpus.features)
        return RegionReader(stored, corpus.image_ids) if len(wanted.shape) == 2 else stored
    return picture_reader(pictures_of(corpus), wanted, backbone)


def picture_reader(pictures: Sequence[Picture], wanted: ImageInput, backbone: Backbone | None = None) -> ImageReader:
    """The reader of pictures for an image input that can be had from pictures."""
    if wanted.kind == "features":
        raise DataError("the run reads features that came with its data; ask with the id of an image of that data")
    if wanted.crops is None:
        return PixelReader(pictures, wanted.shape[-1])
    if wanted.regions is not None and wanted.regions.proposed and backbone is not None:
        return ProposalReader(pictures, wanted, backbone)
    return CropReader(pictures, wanted.crops, wanted.shape[-1])


def proposed_boxes(pictures: Sequence[Picture], wanted: ImageInput) -> Floats:
    """The boxes of the pictures' proposed regions: (pictures, regions, 4), zeros for one that cannot be read."""
    assert wanted.regions is not None
    propose = proposer(wanted.regions)
    boxes = np.zeros((len(pictures), wanted.regions.count, 4), np.float32)
    for own, picture in zip(boxes, pictures, strict=True):
        with suppress(ImageError):
            own[:] = propose(_decoded(picture, wanted.shape[-1]))
    return boxes


def pictures_of(corpus: Corpus) -> Sequence[Picture]:
    """The pictures of a corpus, which must have some."""
    if corpus.pictures is None:
        raise DataError(f"{corpus.name}: has stored features but no pictures; use a recipe that reads features")
    return corpus.pictures


def _decoded(picture: Picture, side: int) -> Image.Image:
    """A picture decoded as the feature store decodes it: a large JPEG at a fraction of its size."""
    return decode(picture.path, resized_side(side)) if isinstance(picture, PictureFile) else picture.load()
