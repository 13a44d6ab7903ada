"""Reading what a model wants of a corpus' images: stored features, or pixels decoded once and kept while they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Features, Integers, Picture
from diptych.data.images import square_pixels
from diptych.errors import ImageError

KEEP_BYTES = 2 * 2**30

Draw = tuple[int, ...]  # what a random reading depends on besides the image: seed, stage, epoch, step


class ImageReader(Protocol):
    """Reads images by number, from several threads at once; what cannot be read is in `skipped` with its reason."""

    skipped: dict[int, str]

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The values of the readable ones among these images, and which those are; nobody moves up."""
        ...


class FeatureReader:
    """Stored features: a row an image, or only for the images in `readable`, the others being `skipped`."""

    def __init__(
        self, features: Features, readable: Integers | None = None, skipped: dict[int, str] | None = None
    ) -> None:
        self._features = features
        self.skipped: dict[int, str] = dict(skipped or {})
        self._row_of = None
        if readable is not None:
            self._row_of = np.full(len(readable) + len(self.skipped), -1)
            self._row_of[readable] = np.arange(len(readable))

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The features of the readable ones among these images, and which those are."""
        rows = images if self._row_of is None else self._row_of[images]
        readable = rows >= 0
        return self._features[rows[readable]], readable


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

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
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
            into[:] = square_pixels(self._pictures[image], self._side)
        except ImageError as reason:
            self.skipped[image] = str(reason)
            return False
        if len(self._known):
            self._kept[image] = into
            self._known[image] = True
        return True
