"""Where the regions of a picture are: found in its pixels, or told by the data."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image

from diptych.data.corpus import Floats
from diptych.features.proposals import Propose, proposer
from diptych.features.regions import Regions


class Proposed:
    """Where the regions of a picture are, found in its pixels, for whoever has such regions."""

    def __init__(self) -> None:
        self._propose: Propose | None = None

    def prepare(self, regions: Regions | None) -> None:
        """Load what finds them; not before there is something to find."""
        if regions is not None and regions.proposed:
            self._propose = proposer(regions)

    def key(self, image: int, digest: str) -> str:
        """What a row is known by: the picture's hash."""
        return digest

    def boxes(self, image: int, decoded: Image.Image) -> Floats | None:
        """The boxes of a decoded picture, (regions, 4), where there are to be some."""
        return None if self._propose is None else self._propose(decoded)


class Annotated:
    """Where the regions of a picture are, as the data says."""

    def __init__(self, boxes: Floats) -> None:
        self._boxes = np.ascontiguousarray(boxes, np.float32)

    def prepare(self, regions: Regions | None) -> None:
        """There is nothing to load."""

    def key(self, image: int, digest: str) -> str:
        """What a row is known by: the picture's hash, and its boxes."""
        return hashlib.sha256(digest.encode() + self._boxes[image].tobytes()).hexdigest()

    def boxes(self, image: int, decoded: Image.Image) -> Floats | None:
        """The boxes of the picture."""
        found: Floats = self._boxes[image]
        return found
