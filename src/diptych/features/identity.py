"""What identifies an image: a hash of its file's bytes, or of its pixels where it is drawn.

A renamed photo keeps its hash, equal photos share one, and a photo that was changed under its old name has another.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from PIL import Image

from diptych.errors import DataError
from diptych.files import read_json, write_text

QUIET = 2 * 10**9  # nanoseconds; file systems with coarse clocks give two edits within them the same time

Stamp = tuple[int, int, int, int]


def file_hash(path: Path) -> str:
    """The hash of an ordinary file's bytes; OSError where there is none (a pipe would be waited for without end)."""
    digest = hashlib.sha256()
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path}: not an ordinary file")
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def pixels_hash(image: Image.Image) -> str:
    """The hash of an RGB image's pixels and its size."""
    digest = hashlib.sha256(f"pixels {image.width} {image.height}\0".encode())
    digest.update(image.tobytes())
    return digest.hexdigest()


def stamp(path: Path) -> Stamp:
    """What changes when a file is written or replaced: size, times of content and of entry, number on the disk."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class Seen:
    """Remembers the hashes of files by path and stamp, so that none is read twice; a cache that is safe to delete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[Stamp, str]] = {}
        self._new = 0
        with suppress(DataError, TypeError, ValueError, AttributeError):  # a cache that cannot be read is an empty one
            known = read_json(path, DataError)
            self._known = {str(name): ((a, b, c, d), str(digest)) for name, (a, b, c, d, digest) in known.items()}

    def hash_of(self, file: Path) -> str | None:
        """The hash that the file had, if it has not changed since."""
        known = self._known.get(_name(file))
        try:
            return known[1] if known and known[0] == stamp(file) else None
        except OSError:
            return None

    def remember(self, file: Path, stamped: Stamp, digest: str) -> None:
        """Note a hash with the stamp from before the file was read; one that was just written may change unseen."""
        if max(stamped[1:3]) < time.time_ns() - QUIET:
            self._known[_name(file)] = stamped, digest
            self._new += 1

    def save(self, *, now: bool = True) -> None:
        """Write what is new; without `now` only if that is a tenth of all, so that saving often stays cheap."""
        if not self._new or not (now or self._new * 10 >= len(self._known)):
            return
        self._new = 0
        known = {name: (*stamped, digest) for name, (stamped, digest) in list(self._known.items())}
        with suppress(OSError):  # what cannot be remembered is read again
            write_text(self._path, json.dumps(known, separators=(",", ":"), ensure_ascii=True) + "\n")


def _name(file: Path) -> str:
    return os.path.abspath(file)  # noqa: PTH100 (no links resolved: that would be a system call a file)
