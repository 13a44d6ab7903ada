"""Walks the boxes of an ISO media file, the container of CR3, HEIC and MP4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_MAX_BOXES = 2000  # per level; a damaged file could have a million empty ones
_MAX_FRAGMENTS = 100_000  # of a long recording
_LENGTH_FOLLOWS, _TO_THE_END = 1, 0


class Box(NamedTuple):
    """A box: its type, followed by the identifier of a `uuid` box, and where its content begins and ends."""

    kind: bytes
    begin: int
    end: int


def boxes(file: BinaryIO, begin: int, end: int, most: int = _MAX_BOXES) -> Iterator[Box]:
    """The boxes between two places of a file; the walk ends at one that is not within them."""
    for _ in range(most):
        file.seek(begin)
        head = file.read(min(32, max(0, end - begin)))
        if len(head) < 8:
            return
        length, kind, content = int.from_bytes(head[:4], "big"), head[4:8], 8
        if length == _LENGTH_FOLLOWS:
            length, content = int.from_bytes(head[8:16], "big"), 16
        elif length == _TO_THE_END:
            length = end - begin
        if kind == b"uuid":
            kind, content = kind + head[content : content + 16], content + 16
        if not content <= length <= end - begin:
            return
        yield Box(kind, begin + content, begin + length)
        begin += length


def find(file: BinaryIO, begin: int, end: int, *path: bytes) -> Iterator[Box]:
    """All boxes that are reached by a path of types, such as moov, trak, mdia."""
    for box in boxes(file, begin, end):
        if box.kind == path[0]:
            if len(path) == 1:
                yield box
            else:
                yield from find(file, box.begin, box.end, *path[1:])


def is_cut_short(path: Path) -> bool:
    """Whether a file is an ISO media file whose last box would go on after its end; False for any other file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(4)
            if file.read(4) != b"ftyp":
                return False
            found = list(boxes(file, 0, size, _MAX_FRAGMENTS))
            return len(found) < _MAX_FRAGMENTS and (not found or found[-1].end < size)
    except OSError:
        return False
