"""Reads the members of a tar file from its beginning to its end, with little memory and no trust in what it declares.

Nothing is extracted to disk. Unlike for `tarfile`, a damaged header in the middle is an error, not the end of the file.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from diptych.errors import DataError

MAX_HEADER = 2**20  # bytes of a long name or of extended attributes
_BLOCK = tarfile.BLOCKSIZE
_COPIED = 2**20


class DamagedShardError(DataError):
    """The rest of a shard cannot be read."""


@dataclass(frozen=True)
class Member:
    """A member of a tar file; `is_file` is whether it has content, unlike a folder, a link or a device."""

    name: str
    size: int
    offset: int
    is_file: bool


class TarReader:
    """The members of a tar file in order. Content that is not read before the next member is skipped."""

    def __init__(self, file: BinaryIO, name: str, size: int | None = None) -> None:
        """`size` is the length of the file, if known: a member that is said to be longer is damage."""
        self._file, self._name, self._size = file, name, size
        self._position = 0
        self._left, self._padding = 0, 0  # bytes of the current member's content that have not been read
        self._seekable = file.seekable()

    def __iter__(self) -> Iterator[Member]:
        """Raises DamagedShardError where the file is cut short or damaged."""
        long_name: str | None = None
        extended: dict[str, str] = {}
        while (header := self._next_header()) is not None:
            self._enter(header)
            kind = header.type
            if kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
                content = self._header_content(header)
                if kind == tarfile.GNUTYPE_LONGNAME:
                    long_name = content.rstrip(b"\0").decode(errors="surrogateescape")
                else:
                    extended = _extended(content, self._name)
                continue
            if kind in (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE):
                continue
            if "size" in extended:
                self._resize(_number(extended["size"], self._name))
            if kind == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in extended):
                raise DamagedShardError(f"{self._name}: has a sparse member, {header.name!r}, which is not supported")
            name = extended.get("path") or long_name or header.name
            yield Member(name, self._left, self._position, header.isreg())
            long_name, extended = None, {}

    def read(self) -> bytes:
        """The rest of the current member's content."""
        content = self._exactly(self._left)
        self._left = 0
        return content

    def _next_header(self) -> tarfile.TarInfo | None:
        self._skip(self._left + self._padding)
        self._left = self._padding = 0
        block = self._up_to(_BLOCK)
        if not block:
            raise DamagedShardError(f"{self._name}: cut short (the mark at its end is missing)")
        if len(block) < _BLOCK:
            raise DamagedShardError(f"{self._name}: cut short")
        if not any(block):
            return None
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as reason:
            what = "not a tar file" if self._position == _BLOCK else "damaged in the middle"
            packed = "; unpack it with gunzip" if block[:2] == b"\x1f\x8b" else ""
            raise DamagedShardError(f"{self._name}: {what} ({reason}){packed}") from None

    def _enter(self, header: tarfile.TarInfo) -> None:
        has_content = header.isreg() or header.type not in tarfile.SUPPORTED_TYPES or header.type in _WITH_CONTENT
        self._resize(header.size if has_content else 0)

    def _resize(self, size: int) -> None:
        if size < 0 or (self._size is not None and self._position + size > self._size):
            raise DamagedShardError(f"{self._name}: cut short: a member of {size:,} bytes goes beyond its end")
        self._left, self._padding = size, -size % _BLOCK

    def _header_content(self, header: tarfile.TarInfo) -> bytes:
        if header.size > MAX_HEADER:
            raise DamagedShardError(f"{self._name}: a name of {header.size:,} bytes, and {MAX_HEADER:,} are the limit")
        return self.read()

    def _skip(self, count: int) -> None:
        if self._seekable and count:
            self._file.seek(count, 1)
            self._position += count
            return
        while count:
            count -= len(self._exactly(min(count, _COPIED)))

    def _exactly(self, count: int) -> bytes:
        content = self._up_to(count)
        if len(content) < count:
            raise DamagedShardError(f"{self._name}: cut short")
        return content

    def _up_to(self, count: int) -> bytes:
        """So many bytes, or fewer at the end of the file: a connection may give fewer at a time."""
        content = self._file.read(count)
        while len(content) < count and (more := self._file.read(count - len(content))):
            content += more
        self._position += len(content)
        return content


_WITH_CONTENT = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_SPARSE),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)


def _extended(content: bytes, name: str) -> dict[str, str]:
    """The attributes of a pax header: lines of `length key=value`."""
    found: dict[str, str] = {}
    while content:
        length = _number(content.partition(b" ")[0].decode("ascii", "replace"), name)
        line, content = content[:length], content[length:]
        if not length:
            break
        key, _, value = line.partition(b" ")[2].rstrip(b"\n").partition(b"=")
        found[key.decode(errors="replace")] = value.decode(errors="surrogateescape")
    return found


def _number(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > 20:
        raise DamagedShardError(f"{name}: damaged: {text[:20]!r} is not a length")
    return int(text)
