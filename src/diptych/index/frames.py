"""The frames of a video as images of an index: their keys, such as holiday.mp4#12.0, and their hashes.

The hash of a frame begins with that of the video, so that the frames of a video that was renamed are known without
decoding it. Frames that show the same as the one before are left out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.data.video import Moment
from diptych.errors import DataError
from diptych.index.thumbnails import colour_grid, difference_hash, thumbnail

# Looser than for near-duplicates among all images, where a model's vectors have to agree as well.
SAME_BITS = 5  # of 64
SAME_COLOURS = 24.0  # of 255

_HASH_BYTES = 32
_TENTHS_BYTES = 4
_CHUNK = 2**20


class Frame(NamedTuple):
    """A frame that is worth an entry, with its difference hash and its thumbnail."""

    moment: Moment
    look: int
    thumbnail: bytes


def frame_key(video: str, seconds: float) -> str:
    """The key of a frame of the video with this key."""
    return f"{video}#{seconds:.1f}"


def file_key(key: str, moment: float | None) -> str:
    """The key of the file that an image is from: that of its video, or its own if it is no frame."""
    return key if moment is None else key.rpartition("#")[0]


def number_names(names: Sequence[str | None]) -> Integers:
    """A number for each different name, 0 for none: (names,)."""
    numbers: dict[str, int] = {}
    return np.array([0 if name is None else numbers.setdefault(name, len(numbers) + 1) for name in names], np.int64)


def frame_hash(video: bytes, seconds: float) -> bytes:
    """The hash of a frame of the video with this hash."""
    return video + round(10 * seconds).to_bytes(_TENTHS_BYTES, "big")


def seconds_of(frame: bytes) -> float:
    """The second of the frame with this hash."""
    return int.from_bytes(frame[_HASH_BYTES:], "big") / 10


def video_hash(path: Path, stamp: tuple[int, int]) -> bytes:
    """The hash of a file of any size; a DataError if it is no longer as it was listed."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        status = os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != stamp:
        raise DataError("changed while it was read; run the command again")
    return digest.digest()


def distinct(moments: Iterable[Moment]) -> Iterator[Frame]:
    """The frames that differ from the last one that was kept."""
    last: tuple[int, Floats] | None = None
    for moment in moments:
        look, small = difference_hash(moment.image), thumbnail(moment.image)
        colours = colour_grid(small)
        if last is None or not _shows_the_same(last, (look, colours)):
            last = look, colours
            yield Frame(moment, look, small)


def _shows_the_same(one: tuple[int, Floats], other: tuple[int, Floats]) -> bool:
    bits = bin(one[0] ^ other[0]).count("1")
    return bits <= SAME_BITS and bool(np.abs(one[1] - other[1]).max() <= SAME_COLOURS)
