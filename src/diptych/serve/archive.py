"""A ZIP of files as a stream: it is written while it is sent, with one block of a file in memory at a time.

Files are stored and not compressed, because pictures and videos are compressed already. A file that cannot be read is
listed in missing.txt, and the others are delivered.
"""

from __future__ import annotations

import os
import time
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

BLOCK = 2**18
MISSING = "missing.txt"
_FORBIDDEN = frozenset('<>:"/\\|?*')  # on Windows
_LONGEST = 200  # bytes of a name; file systems allow 255
_EARLIEST, _LATEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)  # that a ZIP can hold


@dataclass
class _Buffer:
    """A file that cannot seek, of which what was written is taken."""

    parts: list[bytes] = field(default_factory=list)

    def write(self, part: bytes) -> int:
        self.parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken = b"".join(self.parts)
        self.parts.clear()
        return taken


def zip_stream(files: Iterable[tuple[str, Path]], missing: Sequence[str] = ()) -> Iterator[bytes]:
    """The bytes of a ZIP of files with their names in it, and of a list of what is `missing`, one line each.

    Names are made valid on every system, and unique without regard to case.
    """
    lines, names, buffer = list(missing), UniqueNames([MISSING]), _Buffer()
    with zipfile.ZipFile(buffer, "w") as archive:  # type: ignore[call-overload]  # it only needs to write
        for name, path in files:
            try:
                with path.open("rb") as file:
                    yield from _store(archive, buffer, names.unique(name), file)
            except OSError as reason:
                lines.append(f"{name}: cannot be read ({reason.strerror or reason})")
        if lines:
            text = "These files could not be delivered:\n\n" + "\n".join(map(_one_line, lines)) + "\n"
            archive.writestr(zipfile.ZipInfo(MISSING, time.localtime()[:6]), text)
    yield buffer.take()


def _store(archive: zipfile.ZipFile, buffer: _Buffer, name: str, file: BinaryIO) -> Iterator[bytes]:
    """Write one file; of one that breaks off the archive has the beginning, and missing.txt names it."""
    status = os.fstat(file.fileno())
    info = zipfile.ZipInfo(name, min(max(time.localtime(status.st_mtime)[:6], _EARLIEST), _LATEST))
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=status.st_size >= 2**31 - BLOCK) as entry:
        left = status.st_size
        while left and (block := file.read(min(BLOCK, left))):  # a file that grows meanwhile is cut
            left -= len(block)
            entry.write(block)
            yield buffer.take()


class UniqueNames:
    """Names that do not repeat, also where upper and lower case are the same: `a.jpg`, `A (2).jpg`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, made valid for every system, with a number if it is taken."""
        name = valid_name(name)
        stem, dot, suffix = name.rpartition(".")
        if not stem:
            stem, dot, suffix = name, "", ""
        candidate, number = name, self._next.get(name.casefold(), 2)
        while candidate.casefold() in self._taken:
            candidate = f"{stem} ({number}){dot}{suffix}"
            number += 1
        self._next[name.casefold()] = number
        self._taken.add(candidate.casefold())
        return candidate


def valid_name(name: str) -> str:
    """The last part of a path as a file name that is valid on every system."""
    name = unicodedata.normalize("NFC", name.rpartition("/")[2]).encode("utf-8", "replace").decode()
    name = "".join("_" if c in _FORBIDDEN or unicodedata.category(c) == "Cc" else c for c in name).strip(". ")
    stem, dot, suffix = name.rpartition(".")
    end = f"{dot}{suffix}" if stem and len(suffix) < 20 else ""
    stem = name.removesuffix(end) if end else name
    kept = stem.encode()[: _LONGEST - len(end.encode())].decode(errors="ignore")
    return (kept + end) or "unnamed"


def _one_line(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())
