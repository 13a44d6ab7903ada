"""What the header of a photo says: its size, the day it was taken, the camera, and the place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from PIL import Image

ORIENTATION, EXIF, GPS = 0x0112, 0x8769, 0x8825
_MAKE, _MODEL, _TAKEN = 0x010F, 0x0110, 0x9003
_LATITUDE_REF, _LATITUDE, _LONGITUDE_REF, _LONGITUDE = 1, 2, 3, 4
_FIRST_ROTATED_ORIENTATION = 5

_LONGEST_NAME = 80
_LEGAL_FORM = re.compile(
    r"\b(corporation|company|corp|co|ltd|limited|inc|imaging|electronics|optical|gmbh|ag|tech)\b\.?,?", re.IGNORECASE
)

Tags = Mapping[int, Any]


@dataclass(frozen=True)
class Header:
    """The upright width and height of a photo, and what its camera noted, if the file has it.

    `taken` is a day, `camera` is maker and model, and the place is in degrees, north and east positive.
    """

    width: int
    height: int
    taken: str | None = None
    camera: str | None = None
    latitude: float | None = None
    longitude: float | None = None


def header_of(image: Image.Image) -> Header:
    """The header of an opened photo, read before its pixels are decoded; a damaged EXIF block is ignored."""
    try:
        exif = image.getexif()
        header = make_header(image.size, exif, exif.get_ifd(EXIF), exif.get_ifd(GPS))
    except Exception:  # whatever a damaged block makes the parser raise
        return Header(*image.size)
    is_upright = hasattr(image, "_tile_size")  # recent Pillows give the upright size of a TIFF
    return replace(header, width=image.width, height=image.height) if is_upright else header


def make_header(size: tuple[int, int], main: Tags, details: Tags, gps: Tags) -> Header:
    """The header that a size and the EXIF tags of a photo make: the main tags, those of the capture, and the place."""
    width, height = size
    with suppress(TypeError):
        if main.get(ORIENTATION, 1) >= _FIRST_ROTATED_ORIENTATION:
            width, height = height, width
    latitude, longitude = _place(gps)
    return Header(
        *(width, height, capture_day(details.get(_TAKEN)), camera_name(main.get(_MAKE), main.get(_MODEL))),
        *(latitude, longitude),
    )


def capture_day(moment: object) -> str | None:
    """The day of a moment such as "2026:11:16 10:00:00", as 2026-11-16; None if there is no such day."""
    found = re.match(r"\s*(\d{4})[-:/](\d{1,2})[-:/](\d{1,2})(?!\d)", str(moment))
    with suppress(ValueError):
        return date(*map(int, found.groups())).isoformat() if found else None
    return None


def camera_name(make: object, model: object) -> str | None:
    """Maker and model as people say them: "NIKON CORPORATION" and "NIKON D750" become "Nikon D750"."""
    makers = _LEGAL_FORM.sub(" ", _clean(make)).replace(",", " ").split()
    models = _clean(model).split()
    known = {word.casefold() for word in makers}
    if models and models[0].casefold() in known:
        makers, models = models[:1], models[1:]
    name = " ".join([*map(_capitalised, makers), *models])
    return name[:_LONGEST_NAME].strip() or None


def place(latitude: float, longitude: float) -> tuple[float, float] | tuple[None, None]:
    """A place in degrees; nothing if it is not on the earth, or 0, 0, which cameras write without a fix."""
    is_valid = abs(latitude) <= 90 and abs(longitude) <= 180 and (latitude or longitude)  # false for NaN
    return (round(latitude, 6), round(longitude, 6)) if is_valid else (None, None)


def _place(gps: Tags) -> tuple[float, float] | tuple[None, None]:
    try:
        return place(
            _degrees(gps[_LATITUDE], gps.get(_LATITUDE_REF), "S"),
            _degrees(gps[_LONGITUDE], gps.get(_LONGITUDE_REF), "W"),
        )
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None, None


def _degrees(parts: Sequence[Any], reference: object, negative: str) -> float:
    """Degrees, minutes and seconds as degrees."""
    values = [float(part) for part in parts]
    if not 1 <= len(values) <= 3 or not all(math.isfinite(value) and value >= 0 for value in values):
        raise ValueError(parts)
    degrees = sum(value / factor for value, factor in zip(values, (1, 60, 3600), strict=False))
    return -degrees if _clean(reference).upper().startswith(negative) else degrees


def _clean(text: object) -> str:
    """The printable part of a text field, which cameras pad with zero bytes and spaces."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    if not isinstance(text, str):
        return ""
    text = text.partition("\0")[0]
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _capitalised(word: str) -> str:
    """A maker in capitals as its name is written; short ones, such as LG, are abbreviations."""
    return word.capitalize() if word.isupper() and len(word) > 3 else word
