"""Decoding image files to upright RGB; a file that cannot be decoded raises an ImageError with the reason."""

from __future__ import annotations

import functools
import io
import re
import stat
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from diptych.data.corpus import Picture
from diptych.errors import ImageError

MAX_PIXELS = 100_000_000  # width times height as the header declares it, checked before anything is decoded

_ENDINGS = "jpg jpeg jpe jfif png gif webp bmp tif tiff ppm pgm jp2 avif"
IMAGE_SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split())

# Formats that Pillow decodes itself; it passes others on, EPS to an interpreter and WMF to the system.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")

_ORIENTATION_TAG, _EXIF_TAG, _TAKEN_TAG = 0x0112, 0x8769, 0x9003
_FIRST_ROTATED_ORIENTATION = 5
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Where Pillow keeps the EXIF and XMP blocks of a file, which both can hold the orientation.
_ORIENTED = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")

_EMPTY = "an empty file (0 bytes); copy it again"

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

    With `size`, a large JPEG is decoded at a reduced resolution of at least twice that size, which is several times
    faster.
    """
    try:
        return _decode(path, size)
    except Exception as reason:  # a damaged file makes decoders raise anything from OSError to IndexError
        raise ImageError(" ".join(f"{path}: {_describe(reason)}".splitlines())) from None


def decode_bytes(content: bytes, name: str, size: int | None = None, limit: int = MAX_PIXELS) -> Image.Image:
    """Decode the content of a file as `decode` does; `limit` is the largest width times height."""
    try:
        if not content:
            raise ImageError(_EMPTY)
        return _decode_open(io.BytesIO(content), size, limit)
    except Exception as reason:
        raise ImageError(" ".join(f"{name}: {_describe(reason, limit)}".splitlines())) from None


def upright_rgb(image: Image.Image, name: str) -> Image.Image:
    """An image that somebody else opened, treated as `decode` treats a file; `name` names it in the ImageError."""
    _silence_pil()
    try:
        if getattr(image, "tile", None) and getattr(image, "fp", None) is None:
            raise ImageError("its file was closed before it was decoded; pass the path, or call load() before closing")
        _check_size(image, MAX_PIXELS)
        with _LOAD_LOCKS[hash(id(image)) % len(_LOAD_LOCKS)]:
            image.load()
        return _rgb(_upright(image))
    except Exception as reason:
        raise ImageError(" ".join(f"{name}: {_describe(reason)}".splitlines())) from None


@dataclass(frozen=True)
class Header:
    """The upright width and height of a photo, and the day it was taken, if the file has it."""

    width: int
    height: int
    taken: str | None


def read_header(content: bytes) -> Header:
    """Read the header of an image file that can be decoded, without decoding its pixels."""
    _silence_pil()
    with Image.open(io.BytesIO(content), formats=_formats()) as image:
        width, height, taken = image.width, image.height, None
        with suppress(Exception):  # a damaged EXIF block is ignored
            exif = image.getexif()
            if exif.get(_ORIENTATION_TAG, 1) >= _FIRST_ROTATED_ORIENTATION:
                width, height = height, width
            taken = _day(str(exif.get_ifd(_EXIF_TAG)[_TAKEN_TAG]))
        return Header(width, height, taken)


def _day(moment: str) -> str:
    year, month, day = re.split("[-: ]", moment)[:3]
    return date(int(year), int(month), int(day)).isoformat()


def _decode(path: Path, size: int | None) -> Image.Image:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ImageError("a folder, not an image" if path.is_dir() else "not an ordinary file")
    if not status.st_size:
        raise ImageError(_EMPTY)
    with path.open("rb") as file:
        return _decode_open(file, size, MAX_PIXELS)


def _decode_open(file: BinaryIO, size: int | None, limit: int) -> Image.Image:
    _silence_pil()
    with Image.open(file, formats=_formats()) as image:
        _check_size(image, limit)
        if size is not None:
            image.draft(None, (2 * size, 2 * size))  # twice: antialiasing needs something to average
        image.load()
        return _rgb(_upright(image))


def _check_size(image: Image.Image, limit: int) -> None:
    if image.width * image.height > limit:
        raise ImageError(_too_large(f"{image.width} x {image.height} pixels", limit))


def _describe(error: Exception, limit: int = MAX_PIXELS) -> str:
    if isinstance(error, ImageError):
        return str(error)
    if isinstance(error, Image.DecompressionBombError):
        return _too_large("too large", limit)
    if isinstance(error, UnidentifiedImageError):
        return f"not an image in a known format ({', '.join(_formats())}), or its beginning is damaged"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    return f"damaged or cut short ({str(error) or type(error).__name__}); copy or export it again"


def _too_large(size: str, limit: int) -> str:
    return f"{size}, above the limit of {limit:,} pixels; save it smaller"


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


def _upright(image: Image.Image) -> Image.Image:
    try:
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # a damaged EXIF block does not make the pixels unreadable
        return image
    if turn is None:
        return image
    turned = image.transpose(turn)
    for name in _ORIENTED:  # otherwise the upright image would be turned once more by the next reader
        turned.info.pop(name, None)
    return turned


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = _eight_bits(image)
    if image.mode == "F":
        raise ImageError("floating-point pixels have no fixed white; save it with 8 or 16 bits")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), colours)
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image)  # (height, width)
    if values.min() < 0 or values.max() > 65535:
        raise ImageError("32-bit pixels beyond 0-65535 have no fixed white; save it with 8 or 16 bits")
    grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 becomes 255; PIL would clip
    if "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255
    return Image.fromarray(grey)
