"""A model that is opened only when something must be encoded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.errors import IndexFileError
from diptych.features.crops import resized_side
from diptych.index.encoder import Encoder
from diptych.index.thumbnails import LONGEST

SQUARES = 32  # in one forward pass; as for features, threads wait for each other less often than with 16


class Opened:
    """A model that is opened when it is first asked for, by whichever thread.

    Then `decoded` is the size that it wants large photos decoded for, and `at_once` how many it encodes best in a pass.
    """

    def __init__(self, opener: Callable[[], Encoder], identity: str, size: int) -> None:
        self._opener, self._identity, self._size = opener, identity, size
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None
        self.decoded: int | None = None
        self.at_once = 1

    def __call__(self) -> Encoder:
        """The model."""
        with self._lock:
            if self._encoder is None:
                encoder = self._opener()
                if (encoder.identity, encoder.size) != (self._identity, self._size):
                    raise IndexFileError(f"{encoder.address}: changed while it was opened; run the command again")
                sample = _sample(encoder)
                self.at_once = max(1, SQUARES // (len(sample) if sample.ndim == 4 else 1))
                self.decoded = decoded_for(encoder)
                self._encoder = encoder
            return self._encoder


def decoded_for(encoder: Encoder) -> int | None:
    """The size that large photos are decoded for: who asks with a file that is indexed shall get its vector."""
    sample = _sample(encoder)
    squares = sample.dtype == np.uint8 and sample.ndim >= 3
    return max(resized_side(sample.shape[-1]), LONGEST // 2) if squares else None


def _sample(encoder: Encoder) -> NDArray[Any]:
    """What the model reads of a photo: pixels as (3, side, side) or (crops, 3, side, side) bytes, or regions."""
    return encoder.prepare(Image.new("RGB", (64, 64)))
