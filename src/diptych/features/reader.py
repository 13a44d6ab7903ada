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
from diptych.features.crops import Crops, fixed_crops, random_crop, resized_side


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
    """The crops of each image, decoded each time: (images, crops, 3, side, side) bytes.

    With `random` set it is one random crop, a pure function of the file and the draw; otherwise the fixed ones.
    """

    def __init__(self, pictures: Sequence[Picture], crops: Crops, side: int, random: bool = False) -> None:
        self._pictures, self._crops, self._side, self._random = pictures, crops, side, random
        self.skipped: dict[int, str] = {}

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
        if not self._random:
            return fixed_crops(_decoded(picture, self._side), self._crops, self._side)
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*draw, image])))
        # A window of the photo itself needs its pixels; a window of the resized square does not.
        photo = picture.load() if self._crops.resize == "short" else _decoded(picture, self._side)
        return random_crop(photo, self._crops.resize, self._side, random)[None]


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
