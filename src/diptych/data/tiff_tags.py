"""Reads the directories of tags in a TIFF structure, as RAW photos have it, without reading their pixels.

Offsets and counts of a damaged file may be anything: what does not lie within the file is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

SUB_DIRECTORIES = 0x014A

# The bytes per value of each type, and its code for `struct`; two numbers make a fraction.
_TYPES = {1: (1, "B"), 2: (1, "s"), 3: (2, "H"), 4: (4, "I"), 5: (8, "II"), 7: (1, "s"), 9: (4, "i"), 13: (4, "I")}
_TEXT, _FRACTION, _BYTES = 2, 5, 7

_MAX_DIRECTORIES = 64
_MAX_FIELDS = 2000  # per directory
_MAX_BYTES = 64 * 1024  # per value


class Field(NamedTuple):
    """A value in a file: its type, the number of its parts, and where it begins."""

    kind: int
    parts: int
    at: int


Directory = dict[int, Field]


class TiffTags:
    """The directories of the TIFF structure that begins at `start`; offsets in it count from there."""

    def __init__(self, file: BinaryIO, start: int = 0) -> None:
        self._file, self._start = file, start
        self._end = file.seek(0, 2)
        header = self.read(start, 8)
        self._order = ">" if header[:2] == b"MM" else "<"
        self._first = struct.unpack(self._order + "I", header[4:])[0] if len(header) == 8 else 0

    def read(self, at: int, count: int) -> bytes:
        """The bytes at a place of the file; nothing if they are not all there."""
        if not 0 <= at <= self._end - count:
            return b""
        self._file.seek(at)
        return self._file.read(count)

    def directories(self) -> Iterator[Directory]:
        """The directories in their chain, each followed by those below it, every one once."""
        seen: set[int] = set()
        pending = [self._first]
        while pending and len(seen) < _MAX_DIRECTORIES:
            offset = pending.pop()
            if not offset or offset in seen:
                continue
            seen.add(offset)
            fields, following = self._directory(offset)
            below = [value for value in self.values(fields, SUB_DIRECTORIES) if isinstance(value, int)]
            pending += [following, *reversed(below)]
            yield fields

    def directory(self, fields: Directory, tag: int) -> Directory:
        """The directory that a tag points to, such as that of EXIF; empty if there is none."""
        offset = self.number(fields, tag)
        return {} if offset is None else self._directory(offset)[0]

    def number(self, fields: Directory, tag: int) -> int | None:
        """The first number of a tag, if it has one."""
        return next((value for value in self.values(fields, tag) if isinstance(value, int)), None)

    def values(self, fields: Directory, tag: int) -> tuple[Any, ...]:
        """The parts of a tag's value: integers, floats for fractions, or one text; empty if it has none."""
        field = fields.get(tag)
        if field is None or field.kind not in _TYPES:
            return ()
        size, code = _TYPES[field.kind]
        content = self.read(field.at, size * field.parts) if size * field.parts <= _MAX_BYTES else b""
        if not content:
            return ()
        if field.kind in (_TEXT, _BYTES):
            return (content.decode("latin-1") if field.kind == _TEXT else content,)
        numbers = struct.unpack(self._order + code * field.parts, content)
        if field.kind != _FRACTION:
            return numbers
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return tuple(above / below if below else float("nan") for above, below in pairs)

    def plain(self, fields: Directory) -> dict[int, Any]:
        """The values of a directory by tag; a value of one part by itself."""
        found = {tag: self.values(fields, tag) for tag in fields}
        return {tag: values[0] if len(values) == 1 else values for tag, values in found.items() if values}

    def _directory(self, offset: int) -> tuple[Directory, int]:
        """The fields of the directory at an offset, and the offset of the next one in the chain."""
        at = self._start + offset
        head = self.read(at, 2)
        count = struct.unpack(self._order + "H", head)[0] if head else 0
        content = self.read(at + 2, 12 * count + 4)
        if not content or count > _MAX_FIELDS:
            return {}, 0
        fields: Directory = {}
        for number in range(count):
            tag, kind, parts, value = struct.unpack_from(self._order + "HHII", content, 12 * number)
            is_inline = kind in _TYPES and _TYPES[kind][0] * parts <= 4
            fields[tag] = Field(kind, parts, at + 10 + 12 * number if is_inline else self._start + value)
        return fields, struct.unpack_from(self._order + "I", content, 12 * count)[0]
