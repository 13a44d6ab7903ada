"""Walks the boxes of an ISO media file, the container of CR3, HEIC and MP4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_MAX_BOXES = 2000  # per level; a damaged file could have a million empty ones
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
