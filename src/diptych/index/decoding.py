"""How photos are decoded and batched for the model of an index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from diptych.features.crops import resized_side
from diptych.index.thumbnails import LONGEST
from diptych.model import Model

CROPS_PER_BATCH = 32  # threads wait for each other less often than with 16


@dataclass(frozen=True)
class PhotoOptions:
    """The size to decode large photos for, None for the photo's own, and how many photos to encode at once.

    Indexing and searching use the same size, so that a query with an indexed file finds that file.
    """

    decode_size: int | None
    batch_size: int


def photo_options(model: Model) -> PhotoOptions:
    """The options that suit what a model reads: (3, side, side) or (crops, 3, side, side) bytes, or regions."""
    sample = model.preprocess(Image.new("RGB", (64, 64)))
    reads_squares = sample.dtype == np.uint8 and sample.ndim >= 3
    return PhotoOptions(
        decode_size=max(resized_side(sample.shape[-1]), LONGEST // 2) if reads_squares else None,
        batch_size=max(1, CROPS_PER_BATCH // (len(sample) if sample.ndim == 4 else 1)),
    )
