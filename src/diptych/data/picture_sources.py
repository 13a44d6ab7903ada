"""Pictures from Python objects: paths, PIL images, arrays, the bytes of a file, and anything with a `load()`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Picture
from diptych.data.images import PictureFile, decode, decode_bytes, upright_rgb
from diptych.errors import DataError, ImageError, one_line

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|data:")
_KINDS = "a path, a PIL image, a uint8 array, the bytes of a file, or an object with load()"


@dataclass(frozen=True, eq=False)
class LazyPicture:
    """A picture that is opened each time it is loaded; its name is in the message if that fails."""

    name: str
    open: Callable[[], object]

    def load(self) -> Image.Image:
        """Open it as an upright RGB image, or raise ImageError with the reason."""
        try:
            image = self.open()
        except ImageError:
            raise
        except Exception as reason:  # code of the user, or of another library
            raise ImageError(f"{self.name}: cannot be loaded ({one_line(reason)})") from None
        if not isinstance(image, Image.Image):
            raise ImageError(f"{self.name}: load() returned {_type_of(image)}, not a PIL image")
        return upright_rgb(image, self.name)


def image_path(value: object) -> str | None:
    """The path that a value names, None if it is not a path; a URL raises a DataError."""
    if not isinstance(value, str | os.PathLike):
        return None
    path = os.fspath(value)
    if not isinstance(path, str):
        raise DataError("the path is of type bytes, not a string")
    if not path:
        raise DataError("the image is empty; give its path")
    if _URL.match(path):
        raise DataError(f"{path[:60]!r} is a URL, and Diptych never downloads; save the file first")
    return path


def as_picture(value: object, name: str) -> Picture:
    """The picture that a value is or names; DataError if it is none. Nothing is decoded yet."""
    if isinstance(value, PictureFile):
        return value
    path = image_path(value)
    return LazyPicture(name, _opener(value, name)) if path is None else PictureFile(Path(path))


def _opener(value: object, name: str) -> Callable[[], object]:
    """The function that opens an image which is not a path."""
    if isinstance(value, Image.Image):
        return lambda: value
    if isinstance(value, np.ndarray):
        return partial(Image.fromarray, _pixels(value))
    if isinstance(value, bytes | bytearray):
        return partial(decode_bytes, bytes(value), name)
    if isinstance(value, Mapping) and value and set(value) <= {"bytes", "path"}:
        return partial(decode_stored, value, name)
    if callable(load := getattr(value, "load", None)):
        opener: Callable[[], object] = load
        return opener
    raise DataError("no image" if value is None else f"the image is {_type_of(value)}; give {_KINDS}")


def decode_stored(stored: Mapping[str, Any], name: str) -> Image.Image:
    """Decode what Hugging Face stores of an image: the bytes of a file, or its path."""
    if stored.get("bytes") is not None:
        return decode_bytes(stored["bytes"], name)
    try:
        path = image_path(stored.get("path"))
    except DataError as reason:
        raise ImageError(f"{name}: {reason}") from None
    if path is None:
        raise ImageError(f"{name}: neither bytes nor a path")
    return decode(Path(path))


def _pixels(array: NDArray[Any]) -> NDArray[np.uint8]:
    """An array that PIL understands: (height, width) or (height, width, 3 or 4)."""
    if array.dtype != np.uint8:
        raise DataError(f"the image is an array of {array.dtype}; convert its pixels to uint8, from 0 to 255")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or not array.size:
        raise DataError(
            f"the image is an array of shape {array.shape}; it must be (height, width) or (height, width, 3 or 4)"
        )
    return array


def _type_of(value: object) -> str:
    return f"of type {type(value).__name__}"
