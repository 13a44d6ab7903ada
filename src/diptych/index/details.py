"""What an index knows about one image beyond its entry: its file, its camera, its place, and the words in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

DaySource = Literal["taken", "file"]


@dataclass(frozen=True)
class ImageDetails:
    """Details of an image; each is None if it is not known.

    `day` is `taken`, the day of the capture, or else the day of the file, as `day_source` says. `moment` is the second
    of a video that the image shows, and `words` are those that can be read in the picture.
    """

    bytes: int | None = None
    taken: str | None = None
    day: str | None = None
    day_source: DaySource | None = None
    camera: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    moment: float | None = None
    words: str | None = None


@runtime_checkable
class DetailedStore(Protocol):
    """What a store also has if it keeps details; a backend need not support them."""

    def details(self, image: int) -> ImageDetails:
        """What the index knows about an image beyond its entry; a DataError if there is no such image."""
        ...
