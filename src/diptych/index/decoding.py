"""How photos are decoded and batched for the model of an index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from diptych.features.crops import resized_side
from diptych.index.thumbnails import LONGEST
from diptych.models.encode import images_per_batch
from diptych.models.engines.engine import Engine


@dataclass(frozen=True)
class PhotoOptions:
    """The size to decode large photos for, None for the photo's own, and how many photos to encode at once.

    Indexing and searching use the same size, so that a query with an indexed file finds that file.
    """

    decode_size: int | None
    batch_size: int


def photo_options(engine: Engine) -> PhotoOptions:
    """The options that suit what a model reads: (3, side, side) or (crops, 3, side, side) bytes, or regions."""
    sample = engine.preprocess(Image.new("RGB", (64, 64)))
    reads_squares = sample.dtype == np.uint8 and sample.ndim >= 3 and engine.decode_size is not None
    return PhotoOptions(
        decode_size=max(resized_side(sample.shape[-1]), LONGEST // 2) if reads_squares else None,
        batch_size=images_per_batch(sample),
    )
