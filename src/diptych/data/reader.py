"""Reading what a model wants of a corpus' images: stored features, or pixels decoded once and kept while they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Features, Integers, Picture
from diptych.data.images import pixels
from diptych.errors import DataError, ImageError

KEEP_BYTES = 2 * 2**30


class FeatureReader:
    """Stored features; every image has its row."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self.skipped: dict[int, str] = {}

    def read(self, images: Integers) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The features of these images and which of them could be read: all."""
        return self._features[images], np.ones(len(images), bool)


class PixelReader:
    """Pixels of one size; an image that cannot be decoded is left out with its reason, and nobody moves up.

    Reads from several threads at once agree with reads from one: an image's pixels depend on nothing but its file.
    """

    def __init__(self, pictures: Sequence[Picture], side: int) -> None:
        self._pictures = pictures
        self._side = side
        self.skipped: dict[int, str] = {}
        fits = len(pictures) * 3 * side * side <= KEEP_BYTES
        self._kept = np.empty((len(pictures) if fits else 0, 3, side, side), np.uint8)
        self._known = np.zeros(len(self._kept), bool)

    def read(self, images: Integers) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The pixels of the readable ones among these images, (readable, 3, side, side), and which those are."""
        readable = np.ones(len(images), bool)
        out = np.empty((len(images), 3, self._side, self._side), np.uint8)
        for row, image in enumerate(images):
            if image in self.skipped:
                readable[row] = False
            elif len(self._known) and self._known[image]:
                out[row] = self._kept[image]
            else:
                readable[row] = self._decode(int(image), out[row])
        return (out if readable.all() else out[readable]), readable

    def _decode(self, image: int, into: NDArray[np.uint8]) -> bool:
        try:
            into[:] = pixels(self._pictures[image], self._side)
        except ImageError as reason:
            self.skipped[image] = str(reason)
            return False
        if len(self._known):
            self._kept[image] = into
            self._known[image] = True
        return True


def image_reader(corpus: Corpus, kind: str, shape: tuple[int, ...]) -> FeatureReader | PixelReader:
    """The reader of what a model's image input asks for; a corpus that does not have it is an error."""
    if kind == "pixels":
        if corpus.pictures is None:
            raise DataError(f"{corpus.name}: has stored features but no pictures; use a recipe that reads features")
        return PixelReader(corpus.pictures, shape[-1])
    if corpus.features is None:
        raise DataError(
            f"{corpus.name}: has pictures but no stored features; use a recipe that reads pixels, such as `scenes`"
        )
    if corpus.features.shape != shape:
        raise DataError(f"{corpus.name}: features of shape {corpus.features.shape}, the model reads {shape}")
    return FeatureReader(corpus.features)
