"""Turns an opened image upright and into RGB with 8 bits, whatever its file stores."""

from __future__ import annotations

import numpy as np
from PIL import Image

from diptych.data.header import ORIENTATION
from diptych.errors import ImageError

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


def orientation(image: Image.Image) -> int:
    """How the image is turned, as EXIF numbers it; 1 is upright."""
    try:
        number = image.getexif().get(ORIENTATION, 1)
        return number if number in _UPRIGHT else 1
    except Exception:  # a damaged EXIF block does not make the pixels unreadable
        return 1


def turn(image: Image.Image, orientation: int) -> Image.Image:
    """The image turned upright."""
    if orientation not in _UPRIGHT:
        return image
    turned = image.transpose(_UPRIGHT[orientation])
    for name in _ORIENTED:  # otherwise the upright image would be turned once more by the next reader
        turned.info.pop(name, None)
    return turned


def to_rgb(image: Image.Image) -> Image.Image:
    """The image as RGB with 8 bits, transparent pixels on white; pixels without a fixed white are an ImageError."""
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
