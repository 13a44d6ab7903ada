"""Thumbnails of an index in Milvus, which keeps none itself: it would hold them in memory.

They are files named after the hash of their content, in a folder or in any store that fsspec knows (`s3://bucket/small`).
Without such a place, a thumbnail is made from the original file whenever it is needed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

from diptych.data.images import decode
from diptych.data.video import frame_at
from diptych.errors import DiptychError, IndexFileError, one_line
from diptych.files import atomic_write
from diptych.index.milvus.client import INSTALL
from diptych.index.thumbnails import LONGEST, thumbnail
from diptych.optional import import_optional

_SCHEME = re.compile(r"[a-z][a-z0-9+-]*://")


class ThumbnailStore(Protocol):
    """Where the thumbnails of an index are, by the hash of the content."""

    def put(self, digest: str, jpeg: bytes) -> None:
        """Store a thumbnail; one that is there already is replaced."""
        ...

    def get(self, digest: str) -> bytes | None:
        """A thumbnail; None if there is none."""
        ...

    def remove(self, digest: str) -> None:
        """Remove a thumbnail, if it is there."""
        ...


class FolderThumbnails:
    """Thumbnails in a folder, 256 folders deep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, digest: str, jpeg: bytes) -> None:
        """Write the file, completely or not at all."""
        file = self._file(digest)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as temporary:
                temporary.write_bytes(jpeg)
        except OSError as reason:
            raise IndexFileError(
                f"{self._folder}: thumbnails cannot be written ({reason.strerror}); free some space or check the "
                "permissions, then run the command again; finished work is kept"
            ) from None

    def get(self, digest: str) -> bytes | None:
        """The content of the file."""
        try:
            return self._file(digest).read_bytes()
        except OSError:
            return None

    def remove(self, digest: str) -> None:
        """Delete the file."""
        self._file(digest).unlink(missing_ok=True)

    def _file(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.jpg"


class RemoteThumbnails:
    """Thumbnails in a store that fsspec knows."""

    def __init__(self, address: str) -> None:
        fsspec = import_optional("fsspec", INSTALL, "a folder")
        self._address = address
        try:
            self._files, self._root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError, OSError) as reason:
            raise IndexFileError(f"thumbnails={address}: cannot be used ({one_line(reason)})") from None

    def put(self, digest: str, jpeg: bytes) -> None:
        """Write the object."""
        self._try(lambda: self._files.pipe_file(self._path(digest, make=True), jpeg))

    def get(self, digest: str) -> bytes | None:
        """Read the object."""
        try:
            return bytes(self._files.cat_file(self._path(digest)))
        except FileNotFoundError:
            return None
        except Exception as reason:  # stores raise errors of their own
            raise self._error(reason) from None

    def remove(self, digest: str) -> None:
        """Delete the object."""
        if self.get(digest) is not None:
            self._try(lambda: self._files.rm_file(self._path(digest)))

    def _path(self, digest: str, *, make: bool = False) -> str:
        folder = f"{self._root.rstrip('/')}/{digest[:2]}"
        if make:
            self._files.makedirs(folder, exist_ok=True)
        return f"{folder}/{digest}.jpg"

    def _try(self, action: Any) -> None:
        try:
            action()
        except Exception as reason:  # stores raise errors of their own
            raise self._error(reason) from None

    def _error(self, reason: Exception) -> IndexFileError:
        return IndexFileError(
            f"thumbnails={self._address}: the store fails ({one_line(reason)}); check it and try again"
        )


def thumbnail_store(address: str | None) -> ThumbnailStore | None:
    """The store at an address; None without one."""
    if address is None:
        return None
    return RemoteThumbnails(address) if _SCHEME.match(address) else FolderThumbnails(Path(address).absolute())


def from_original(file: str, moment: float | None) -> bytes | None:
    """The thumbnail of a file, or of a frame of a video; None if it cannot be read now."""
    try:
        path = Path(file)
        return thumbnail(decode(path, LONGEST) if moment is None else frame_at(path, moment, LONGEST))
    except (DiptychError, OSError):
        return None
