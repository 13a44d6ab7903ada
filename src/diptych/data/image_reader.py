"""The interface through which batches read images; the readers themselves are in `diptych.features.readers`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers

Draw = tuple[int, ...]  # what a random crop depends on besides the image: seed, stage, epoch and step


class ImageReader(Protocol):
    """Reads images by number, from several threads at once.

    `skipped` maps each image that could not be read to the reason.
    """

    skipped: dict[int, str]

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the values of the readable images, in order, and a mask of which of `images` those are."""
        ...
