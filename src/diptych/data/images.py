"""Decoding image files to upright RGB; a file that cannot be decoded raises an ImageError with the reason."""

from __future__ import annotations

import functools
import io
import re
import stat
import struct
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from diptych.data import large_photos
from diptych.data.corpus import Picture
from diptych.data.header import Header, header_of
from diptych.data.heif import is_heif, open_heif
from diptych.data.raw_preview import is_raw, open_raw
from diptych.data.upright import orientation, to_rgb, turn
from diptych.errors import ImageError, MissingPackageError

# Formats that Pillow decodes itself; it passes others on, EPS to an interpreter and WMF to the system.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")

# EXIF may follow the pixels, so that Pillow decodes the image when it is asked for it, whatever its size.
_LATE_HEADERS = ("PNG",)

_EMPTY = "an empty file (0 bytes); copy it again"

_BEGINNING = 64  # bytes that identify a format

_PIL_FILTER = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
_filter_lock = threading.Lock()

# Pillow decodes an image from `Image.open` in place when it is first used, and two threads may be given the same one.
_LOAD_LOCKS = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True)
class PictureFile:
    """An image file, decoded each time it is loaded."""

    path: Path

    def load(self) -> Image.Image:
        """Decode to an upright RGB image, or raise ImageError with the reason."""
        return decode(self.path)


@dataclass(frozen=True)
class StoredPicture:
    """An image in the bytes of a larger file, such as a shard; decoded each time it is loaded."""

    name: str
    content: Callable[[], bytes]

    def load(self) -> Image.Image:
        """Decode to an upright RGB image, or raise ImageError with the reason."""
        return self.load_for_side(None)

    def load_for_side(self, side: int | None) -> Image.Image:
        """Decode as `decode` does a file."""
        try:
            content = self.content()
        except OSError as reason:
            raise _named(reason, self.name) from None
        return decode_bytes(content, self.name, side)


@dataclass(frozen=True)
class Photo:
    """An upright RGB image, and what the header of its file says."""

    image: Image.Image
    header: Header


@dataclass(frozen=True)
class DecodedPicture:
    """An image that is already decoded."""

    image: Image.Image

    def load(self) -> Image.Image:
        """The image."""
        return self.image


def picture_path(picture: Picture) -> Path | None:
    """The file of a picture; None if it is not a file."""
    return picture.path if isinstance(picture, PictureFile) else None


def load_for_side(picture: Picture, side: int | None) -> Image.Image:
    """Decode a picture that will be shown or cropped at this side; a large JPEG is decoded at a reduced size."""
    if isinstance(picture, StoredPicture):
        return picture.load_for_side(side)
    path = picture_path(picture)
    return picture.load() if path is None else decode(path, side)


def square_pixels(picture: Picture, size: int) -> NDArray[np.uint8]:
    """A picture resized to a square, whatever its aspect ratio, as (3, size, size) bytes."""
    return square_array(load_for_side(picture, size), size)


def square_array(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """An RGB image resized to a square with antialiasing, as (3, size, size) bytes."""
    square = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(square, np.uint8).transpose(2, 0, 1))  # (3, size, size)


def decode(path: Path, size: int | None = None) -> Image.Image:
    """Decode a file to an upright RGB image, or raise an ImageError that names the file and the reason.

    With `size`, a large JPEG or HEIC is decoded at a reduced resolution of at least twice that size, which is several
    times faster. A RAW photo is shown by its embedded preview. A photo above 100 megapixels is always reduced.
    """
    try:
        return _decode(path, size)
    except Exception as reason:  # a damaged file makes decoders raise anything from OSError to IndexError
        raise _named(reason, str(path)) from None


def decode_bytes(content: bytes, name: str, size: int | None = None, limit: int | None = None) -> Image.Image:
    """Decode the content of a file as `decode` does; `limit` refuses an image with more pixels than that."""
    return read_photo(content, name, size, limit).image


def read_photo(content: bytes, name: str, size: int | None = None, limit: int | None = None) -> Photo:
    """Decode the content of a file as `decode_bytes` does, and read its header, at once."""
    try:
        if not content:
            raise ImageError(_EMPTY)
        with _open(io.BytesIO(content)) as image:
            header = None if image.format in _LATE_HEADERS else header_of(image)
            upright = _upright_rgb(image, size, limit)
            return Photo(upright, header or header_of(image))
    except Exception as reason:
        raise _named(reason, name, limit) from None


def upright_rgb(image: Image.Image, name: str) -> Image.Image:
    """An image that somebody else opened, treated as `decode` treats a file; `name` names it in the ImageError."""
    _silence_pil()
    try:
        if getattr(image, "tile", None) and getattr(image, "fp", None) is None:
            raise ImageError("its file was closed before it was decoded; pass the path, or call load() before closing")
        large_photos.check_size(image, large_photos.MAX_PIXELS)
        with _LOAD_LOCKS[hash(id(image)) % len(_LOAD_LOCKS)]:
            image.load()
        return to_rgb(turn(image, orientation(image)))
    except Exception as reason:
        raise _named(reason, name) from None


def _decode(path: Path, size: int | None) -> Image.Image:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ImageError("a folder, not an image" if path.is_dir() else "not an ordinary file")
    if not status.st_size:
        raise ImageError(_EMPTY)
    with path.open("rb") as file, _open(file) as image:
        return _upright_rgb(image, size, None)


def _open(file: BinaryIO) -> Image.Image:
    """Open an image file by its content, whatever its name says, without decoding it."""
    _silence_pil()
    beginning = file.read(_BEGINNING)
    file.seek(0)
    if is_heif(beginning):
        return open_heif(file)
    if is_raw(file, beginning):
        return open_raw(file)
    file.seek(0)
    with suppress(Image.DecompressionBombError, UnidentifiedImageError):  # too large for `Image.open`, or damaged
        return Image.open(file, formats=_formats())
    recognised = None
    for name in _formats():
        factory, accepts = Image.OPEN[name]
        with suppress(SyntaxError, IndexError, TypeError, struct.error):  # as `Image.open` does
            if accepts is not None and accepts(beginning) is True:
                recognised = name
                file.seek(0)
                return factory(file, "")
    if recognised is not None:
        raise ImageError(f"damaged or cut short (it begins as {recognised}); copy or export it again")
    raise UnidentifiedImageError


def _upright_rgb(image: Image.Image, size: int | None, limit: int | None) -> Image.Image:
    loaded = large_photos.load(image, size, limit)
    return to_rgb(turn(loaded, orientation(image)))  # asked last, because decoding a TIFF turns it


def _named(error: Exception, name: str, limit: int | None = None) -> ImageError:
    """An error as one line that names the file."""
    kind = MissingPackageError if isinstance(error, MissingPackageError) else ImageError
    return kind(" ".join(f"{name}: {_describe(error, limit)}".splitlines()))


def _describe(error: Exception, limit: int | None) -> str:
    if isinstance(error, ImageError):
        return str(error)
    if isinstance(error, Image.DecompressionBombError):
        return large_photos.too_large("too large", limit or large_photos.MAX_PILLOW_PIXELS)
    if isinstance(error, UnidentifiedImageError):
        known = ", ".join((*_formats(), "HEIC", "RAW"))
        return f"not an image in a known format ({known}), or its beginning is damaged"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    return f"damaged or cut short ({str(error) or type(error).__name__}); copy or export it again"


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)  # AVIF is missing from older Pillows


def _silence_pil() -> None:
    # Pillow's warnings are either an ImageError or of no interest. catch_warnings would also swap the filters of other
    # threads, so one narrow filter is put in front, again whenever another one has been put before it.
    if list(warnings.filters[:1]) != [_PIL_FILTER]:
        with _filter_lock:
            warnings.filterwarnings("ignore", module=_PIL_FILTER[3].pattern)
