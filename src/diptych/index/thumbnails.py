"""What an index keeps of a photo to show it and to tell it from near-equals: a small JPEG and 64 bits."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from diptych.data.corpus import Floats

LONGEST = 320
_QUALITY = 80


def thumbnail(photo: Image.Image) -> bytes:
    """A JPEG of an RGB photo, 320 pixels at its longest side; one that is smaller keeps its size."""
    small = photo
    if max(photo.size) > LONGEST:
        scale = LONGEST / max(photo.size)
        width, height = (max(1, round(scale * length)) for length in photo.size)
        small = photo.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def look(photo: Image.Image) -> int:
    """The difference hash of a photo, from 0 to 2^64 - 1: whether each of 9 x 8 grey cells is darker than the next.

    A resized or recompressed copy differs in a few bits.
    """
    grey = photo.resize((9, 8), Image.Resampling.BILINEAR, reducing_gap=2.0).convert("L")
    cells = np.asarray(grey, np.int16)  # (8, 9)
    darker = cells[:, :-1] < cells[:, 1:]
    return int.from_bytes(np.packbits(darker).tobytes(), "big")


def colours(jpeg: bytes) -> Floats:
    """How the mean colours of 8 x 8 cells of a thumbnail differ from that of all of it: (8, 8, 3).

    A brighter copy has almost the same; another colour, or another thing in a place, has not.
    """
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            image.draft("RGB", (64, 64))
            cells = np.asarray(image.convert("RGB").resize((8, 8), Image.Resampling.BOX), np.float32)
    except (OSError, SyntaxError, ValueError):  # damaged, which the doctor tells: it is like nothing
        return np.full((8, 8, 3), np.nan, np.float32)
    apart: Floats = cells - cells.mean((0, 1))
    return apart
