"""What an index stores of a photo to show it and to recognise near-duplicates: a small JPEG and a 64-bit hash."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from diptych.data.corpus import Floats

LONGEST = 320
_QUALITY = 80


def thumbnail(photo: Image.Image) -> bytes:
    """A JPEG of an RGB photo, at most 320 pixels on its longer side."""
    small = photo
    if max(photo.size) > LONGEST:
        scale = LONGEST / max(photo.size)
        width, height = (max(1, round(scale * length)) for length in photo.size)
        small = photo.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def difference_hash(photo: Image.Image) -> int:
    """The difference hash of a photo: for 9 x 8 grey cells, whether each is darker than the next one, as 64 bits.

    A resized or recompressed copy differs in a few bits.
    """
    grey = photo.resize((9, 8), Image.Resampling.BILINEAR, reducing_gap=2.0).convert("L")
    cells = np.asarray(grey, np.int16)  # (8, 9)
    darker = cells[:, :-1] < cells[:, 1:]
    return int.from_bytes(np.packbits(darker).tobytes(), "big")


def colour_grid(jpeg: bytes) -> Floats:
    """The mean colours of 8 x 8 cells of a thumbnail, relative to the mean colour of the whole: (8, 8, 3).

    A brighter copy has almost the same grid; a photo with another colour or another object somewhere does not.
    A damaged thumbnail gives NaN, which resembles nothing.
    """
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            image.draft("RGB", (64, 64))
            cells = np.asarray(image.convert("RGB").resize((8, 8), Image.Resampling.BOX), np.float32)
    except (OSError, SyntaxError, ValueError):  # damaged; `diptych index doctor` reports it
        return np.full((8, 8, 3), np.nan, np.float32)
    grid: Floats = cells - cells.mean((0, 1))
    return grid
