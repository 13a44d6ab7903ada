"""What an image tower reads of a corpus: stored features, small squares of pixels, or crops for a backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Corpus, Integers, Picture
from diptych.data.images import PictureFile, decode
from diptych.data.reader import Draw, FeatureReader, ImageReader, PixelReader
from diptych.errors import DataError, ImageError
from diptych.features.crops import Crops, Resize, fixed_crops, random_crop, resized_side


@dataclass(frozen=True)
class ImageInput:
    """What an image tower reads.

    `pixels`: squares of this shape as bytes; `features`: stored vectors of this shape; `crops`: the crops of an image,
    each of this shape as bytes.
    """

    kind: Literal["pixels", "features", "crops"]
    shape: tuple[int, ...]
    crops: Crops | None = None


class CropReader:
    """The fixed crops of each image: (images, crops, 3, side, side) bytes, decoded each time."""

    def __init__(self, pictures: Sequence[Picture], crops: Crops, side: int) -> None:
        self._pictures, self._crops, self._side = pictures, crops, side
        self.skipped: dict[int, str] = {}

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The crops of the readable ones among these images, and which those are."""
        rows = []
        for image in images.tolist():
            try:
                rows.append(fixed_crops(_decoded(self._pictures[image], self._side), self._crops, self._side))
            except ImageError as reason:
                self.skipped[image] = str(reason)
        return _stacked(rows, (self._crops.count, 3, self._side, self._side)), _readable(images, self.skipped)


class RandomCropReader:
    """One random crop of each image, (images, 1, 3, side, side) bytes: a pure function of the file and the draw."""

    def __init__(self, pictures: Sequence[Picture], resize: Resize, side: int) -> None:
        self._pictures, self._resize, self._side = pictures, resize, side
        self.skipped: dict[int, str] = {}

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """A crop of each readable one among these images, and which those are."""
        rows = []
        for image in images.tolist():
            random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*draw, image])))
            try:
                rows.append(random_crop(self._pictures[image].load(), self._resize, self._side, random)[None])
            except ImageError as reason:
                self.skipped[image] = str(reason)
        return _stacked(rows, (1, 3, self._side, self._side)), _readable(images, self.skipped)


def image_reader(corpus: Corpus, wanted: ImageInput) -> ImageReader:
    """The reader of what a model's image input asks for; a corpus that does not have it is an error."""
    if wanted.kind == "features":
        if corpus.features is None:
            raise DataError(f"{corpus.name}: has pictures, and the run reads features that came with its data")
        if corpus.features.shape != wanted.shape:
            raise DataError(f"{corpus.name}: features of shape {corpus.features.shape}, the model reads {wanted.shape}")
        return FeatureReader(corpus.features)
    return picture_reader(pictures_of(corpus), wanted)


def picture_reader(pictures: Sequence[Picture], wanted: ImageInput) -> ImageReader:
    """The reader of pictures for an image input that can be had from pictures."""
    if wanted.kind == "features":
        raise DataError("the run reads features that came with its data; ask with the id of an image of that data")
    if wanted.crops is None:
        return PixelReader(pictures, wanted.shape[-1])
    return CropReader(pictures, wanted.crops, wanted.shape[-1])


def pictures_of(corpus: Corpus) -> Sequence[Picture]:
    """The pictures of a corpus, which must have some."""
    if corpus.pictures is None:
        raise DataError(f"{corpus.name}: has stored features but no pictures; use a recipe that reads features")
    return corpus.pictures


def _decoded(picture: Picture, side: int) -> Image.Image:
    """A picture decoded as the feature store decodes it: a large JPEG at a fraction of its size."""
    return decode(picture.path, resized_side(side)) if isinstance(picture, PictureFile) else picture.load()


def _stacked(rows: list[NDArray[np.uint8]], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.stack(rows) if rows else np.empty((0, *shape), np.uint8)


def _readable(images: Integers, skipped: dict[int, str]) -> NDArray[np.bool_]:
    return np.array([image not in skipped for image in images.tolist()], bool)
