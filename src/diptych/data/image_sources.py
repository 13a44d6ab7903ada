"""Images as users pass them to a model: paths, PIL images and arrays, checked before anything is read.

A mistake in the list itself (a URL, a number, an array of floats) is a DataError that names the position. An image that
turns out to be unreadable is an ImageError when it is loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Picture
from diptych.data.images import PictureFile, upright_rgb
from diptych.errors import DataError

ImageSource: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8]"

_ACCEPTED = "pass a path, a PIL image or a uint8 array"

# Pillow decodes an image from `Image.open` in place when it is first used, and two threads may be given the same one.
_LOCKS = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True)
class OpenedPicture:
    """A PIL image that somebody else opened, in any mode, turned upright by its EXIF data as files are."""

    image: Image.Image
    name: str

    def load(self) -> Image.Image:
        """The upright RGB image, or an ImageError with the name and the reason."""
        with _LOCKS[hash(id(self.image)) % len(_LOCKS)]:
            return upright_rgb(self.image, self.name)


@dataclass(frozen=True)
class ArrayPicture:
    """An image as uint8 values, (height, width, 3) or grey (height, width)."""

    values: NDArray[np.uint8]

    def load(self) -> Image.Image:
        """The RGB image."""
        return Image.fromarray(self.values).convert("RGB")


def as_pictures(images: Iterable[ImageSource]) -> list[Picture]:
    """The pictures of a list of images, of which none is opened yet; raises DataError if it is not such a list."""
    if isinstance(images, str | bytes | os.PathLike | Image.Image) or _is_single_array(images):
        raise DataError("images: one image, not a list; pass [image]")
    if isinstance(images, Mapping) or not isinstance(images, Iterable):
        raise DataError(f"images: {images!r:.40} is not a list of images")
    return [as_picture(image, f"images[{position}]") for position, image in enumerate(images)]


def as_picture(image: ImageSource, name: str = "the image") -> Picture:
    """The picture of one image, which is not opened yet; `name` names it in errors if it is not a file."""
    if isinstance(image, Image.Image):
        return OpenedPicture(image, name)
    if isinstance(image, np.ndarray):
        return ArrayPicture(_checked(image, name))
    if isinstance(image, str | os.PathLike):
        path = os.fspath(image)
        if not isinstance(path, str) or not path:
            raise DataError(f"{name}: {path!r} is not a path; {_ACCEPTED}")
        if "://" in path:
            raise DataError(f"{name}: {path!r} is a URL, and Diptych never downloads; save the file first")
        return PictureFile(Path(path))
    raise DataError(f"{name}: {image!r:.40} is not an image; {_ACCEPTED}")


def _checked(values: NDArray[Any], name: str) -> NDArray[np.uint8]:
    if values.dtype != np.uint8:
        raise DataError(f"{name}: an array of {values.dtype}; pass uint8 values from 0 to 255")
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] != 3):
        raise DataError(
            f"{name}: an array of shape {values.shape}; pass (height, width, 3), or (height, width) if grey"
        )
    if not values.size:
        raise DataError(f"{name}: an array of shape {values.shape} has no pixels")
    return values


def _is_single_array(images: object) -> bool:
    return isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim < 4
