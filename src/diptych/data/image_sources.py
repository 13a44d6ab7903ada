"""Images as users pass them to a model: a list that is checked before anything is read.

What is not an image at all (None, a URL, an array of floats) is a DataError that names the position, at once, unless
such entries are to be skipped. An image that turns out to be unreadable is an ImageError when it is loaded.
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
from diptych.errors import DataError, ImageError

ImageSource: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | bytes | Picture"


def as_pictures(images: Iterable[ImageSource], *, defer_errors: bool = False) -> list[Picture]:
    """The pictures of a list of images, of which none is opened yet; raises DataError if it is not such a list.

    With `defer_errors`, an entry that is not an image becomes a picture that raises ImageError when it is loaded.
    """
    if isinstance(images, str | bytes | os.PathLike | Image.Image) or _is_single_array(images):
        raise DataError("images: one image, not a list; pass [image]")
    if hasattr(images, "embeddings"):
        raise DataError("images: what encode_images returned with errors='skip'; pass its .embeddings")
    if isinstance(images, Mapping) or not isinstance(images, Iterable):
        raise DataError(f"images: {images!r:.40} is not a list of images")
    convert = _as_picture_or_error if defer_errors else as_picture
    return [convert(image, f"images[{position}]") for position, image in enumerate(images)]


def as_picture(image: ImageSource, name: str = "the image") -> Picture:
    """The picture of one image, which is not opened yet; `name` names it in errors if it is not a file."""
    try:
        return picture_sources.as_picture(image, name)
    except DataError as reason:
        raise DataError(f"{name}: {reason}") from None


def _as_picture_or_error(image: ImageSource, name: str) -> Picture:
    try:
        return as_picture(image, name)
    except DataError as reason:
        message = str(reason)

    def refuse() -> Image.Image:
        raise ImageError(message)

    return picture_sources.LazyPicture(name, refuse)


def _is_single_array(images: object) -> bool:
    return isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim < 4
