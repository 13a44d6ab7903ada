"""Photos of any size in bounded memory: large ones are reduced while they are decoded, or right after it.

JPEG decodes at a half, a quarter or an eighth of its size. Other formats are decoded whole, one large photo at a time,
and reduced strip by strip, so that no second copy of that size is needed.
"""

from __future__ import annotations

import math
import threading

from PIL import Image

from diptych.data.upright import to_rgb
from diptych.errors import ImageError

# Width times height as the header declares it, checked before anything is decoded.
MAX_PIXELS = 100_000_000  # of a decoded photo, and of what several threads decode at once
MAX_WHOLE_PIXELS = 250_000_000  # of a photo that is decoded whole: 1 GB
MAX_PILLOW_PIXELS = 175_000_000  # of TIFF and WebP, which Pillow itself limits
MAX_JPEG_PIXELS = 1_000_000_000
MAX_COEFFICIENT_BYTES = 1_500_000_000  # of a progressive JPEG, which decoders keep in memory

_JPEG = ("JPEG", "MPO")
_STRIP_PIXELS = 16_000_000

_one_large_photo = threading.Lock()


def load(image: Image.Image, size: int | None, limit: int | None) -> Image.Image:
    """Decode an opened image, as RGB if it had to be reduced; ImageError if it is too large.

    With `size`, a photo may come at any size of at least twice that. `limit` refuses what has more pixels.
    """
    check_size(image, limit)
    factor = math.ceil(math.sqrt(image.width * image.height / MAX_PIXELS))
    if (sides := _draft_sides(image, size, factor)) is not None:
        image.draft(None, sides)
    if image.width * image.height <= MAX_PIXELS:
        image.load()
        return image
    with _one_large_photo:
        image.load()
        enough = 1 if size is None else min(image.size) // (2 * size)
        return _reduced(image, max(factor, enough))


def check_size(image: Image.Image, limit: int | None) -> None:
    """Refuse an image with more pixels than `limit`, or than can be decoded of its format, with an ImageError."""
    largest = _largest(image) if limit is None else limit
    if image.width * image.height > largest:
        raise ImageError(too_large(f"{image.width} x {image.height} pixels", largest))
    if image.format in _JPEG and (needed := _coefficient_bytes(image)) > MAX_COEFFICIENT_BYTES:
        raise ImageError(
            f"{image.width} x {image.height} pixels as a progressive JPEG, which takes {needed / 1e9:.1f} GB to decode"
            f", above the limit of {MAX_COEFFICIENT_BYTES / 1e9:.1f} GB; save it as a baseline JPEG, or smaller"
        )


def _draft_sides(image: Image.Image, size: int | None, factor: int) -> tuple[int, int] | None:
    """The sides to ask the decoder for, which gives the next larger ones that it can; None for those of the file."""
    sides = None if size is None else (2 * size, 2 * size)  # twice: antialiasing needs something to average
    if factor > 1 and image.format in _JPEG:
        scale = 2 ** math.ceil(math.log2(factor))
        most = image.width // scale, image.height // scale
        return most if sides is None else (min(most[0], sides[0]), min(most[1], sides[1]))
    return sides


def _largest(image: Image.Image) -> int:
    if image.format in _JPEG:
        return MAX_JPEG_PIXELS
    return MAX_PILLOW_PIXELS if image.format in ("TIFF", "WEBP") else MAX_WHOLE_PIXELS


def too_large(size: str, limit: int) -> str:
    """The message about an image above a limit."""
    return f"{size}, above the limit of {limit:,} pixels; save it smaller"


def _coefficient_bytes(image: Image.Image) -> int:
    """The memory for the coefficients of a progressive JPEG: two bytes per sample of each channel."""
    if not image.info.get("progressive"):
        return 0
    layers = getattr(image, "layer", ())  # (id, horizontal and vertical sampling, table) of each channel
    finest = max((across * down for _, across, down, _ in layers), default=1)
    samples = sum(across * down for _, across, down, _ in layers) / max(finest, 1)
    return int(2 * image.width * image.height * samples)


def _reduced(image: Image.Image, factor: int) -> Image.Image:
    """A decoded image as RGB, reduced by a whole factor."""
    width, height = math.ceil(image.width / factor), math.ceil(image.height / factor)
    small = Image.new("RGB", (width, height))
    rows = max(1, _STRIP_PIXELS // image.width // factor) * factor
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        small.paste(to_rgb(strip).reduce(factor), (0, top // factor))
    return small
