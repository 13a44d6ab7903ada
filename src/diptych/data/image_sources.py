"""Images as users pass them to a model: a list that is checked before anything is read.

A mistake in the list itself (a URL, a number, an array of floats) is a DataError that names the position. An image that
turns out to be unreadable is an ImageError when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data import picture_sources
from diptych.data.corpus import Picture
from diptych.errors import DataError

ImageSource: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | bytes | Picture"


def as_pictures(images: Iterable[ImageSource]) -> list[Picture]:
    """The pictures of a list of images, of which none is opened yet; raises DataError if it is not such a list."""
    if isinstance(images, str | bytes | os.PathLike | Image.Image) or _is_single_array(images):
        raise DataError("images: one image, not a list; pass [image]")
    if isinstance(images, Mapping) or not isinstance(images, Iterable):
        raise DataError(f"images: {images!r:.40} is not a list of images")
    return [as_picture(image, f"images[{position}]") for position, image in enumerate(images)]


def as_picture(image: ImageSource, name: str = "the image") -> Picture:
    """The picture of one image, which is not opened yet; `name` names it in errors if it is not a file."""
    try:
        return picture_sources.as_picture(image, name)
    except DataError as reason:
        raise DataError(f"{name}: {reason}") from None


def _is_single_array(images: object) -> bool:
    return isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim < 4
