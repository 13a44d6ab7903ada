"""Image identity: the hash of a file's bytes or, for an image that is not a file, of its pixels.

A renamed photo keeps its hash, identical photos share one, and a photo that was edited in place gets a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from PIL import Image

from diptych.errors import DataError
from diptych.files import read_json, write_text

# Nanoseconds. A file system with a coarse clock may give two edits within this time the same time stamp.
CLOCK_RESOLUTION = 2 * 10**9

Stamp = tuple[int, int, int, int]


def pixels_hash(image: Image.Image) -> str:
    """The SHA-256 digest of an RGB image's size and pixels."""
    digest = hashlib.sha256(f"pixels {image.width} {image.height}\0".encode())
    digest.update(image.tobytes())
    return digest.hexdigest()


def stamp(path: Path) -> Stamp:
    """Values that change when a file is written or replaced: its size, mtime, ctime and inode."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class HashCache:
    """The hashes of files by path and stamp, so that an unchanged file is not read again; safe to delete.

    Several ranks write one file each, and read those of all; the first rank joins them at the end.
    """

    def __init__(self, path: Path, rank: int = 0) -> None:
        self._all, self._path = path, path if rank == 0 else path.with_stem(f"{path.stem}-{rank}")
        self._known: dict[str, tuple[Stamp, str]] = {}
        self._unsaved = 0
        for file in (*self._others(), path):
            self._read(file)

    def get(self, file: Path) -> str | None:
        """The cached hash of a file; None if there is none or the file has changed since."""
        known = self._known.get(_key(file))
        try:
            return known[1] if known and known[0] == stamp(file) else None
        except OSError:
            return None

    def add(self, file: Path, stamp_before: Stamp, digest: str) -> None:
        """Cache a hash, with the stamp that the file had before it was read.

        A file that was written just now is left out: another edit might leave its stamp unchanged.
        """
        if max(stamp_before[1:3]) < time.time_ns() - CLOCK_RESOLUTION:
            self._known[_key(file)] = stamp_before, digest
            self._unsaved += 1

    def save(self, *, force: bool = True) -> None:
        """Write the cache if it has new entries; without `force` only if they are a tenth of all, to save time."""
        if not self._unsaved or not (force or self._unsaved * 10 >= len(self._known)):
            return
        self._unsaved = 0
        known = {name: (*stamped, digest) for name, (stamped, digest) in sorted(self._known.copy().items())}
        with suppress(OSError):  # without the cache, files are read again
            write_text(self._path, json.dumps(known, separators=(",", ":"), ensure_ascii=True) + "\n")

    def join(self) -> None:
        """Join the files of all ranks, which have saved them, into one."""
        for file in self._others():
            self._unsaved += 1
            self._read(file)
        self.save()
        for file in self._others():
            file.unlink(missing_ok=True)

    def _others(self) -> list[Path]:
        return sorted(self._all.parent.glob(f"{self._all.stem}-*{self._all.suffix}"))

    def _read(self, file: Path) -> None:
        with suppress(DataError, TypeError, ValueError, AttributeError):  # an unreadable cache counts as empty
            known = read_json(file, DataError)
            self._known |= {str(name): ((a, b, c, d), str(digest)) for name, (a, b, c, d, digest) in known.items()}


def _key(file: Path) -> str:
    return os.path.abspath(file)  # noqa: PTH100 (resolving links would be a system call per file)
