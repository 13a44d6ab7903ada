"""The annotation files of Flickr30K Entities, read from annotations.zip or from its unpacked folders."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Protocol

from diptych.errors import DataError

ZIP_NAME = "annotations.zip"
FOLDERS = ("Annotations", "Sentences")

_MAX_BYTES = 2**20  # of one file, unpacked; the largest that was published has some ten thousand


class Archive(Protocol):
    """Annotation files by names such as `Annotations/12.xml`; `path` is the folder or zip file that holds them."""

    path: Path

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes:
        """The content of a file in the archive, or a DataError with the reason."""
        ...


def open_archive(folder: Path) -> Archive:
    """The annotations in a folder: the unpacked ones if they exist, otherwise those in annotations.zip."""
    if all((folder / name).is_dir() for name in FOLDERS):
        return _Unpacked(folder)
    if (folder / ZIP_NAME).is_file():
        return _Zipped(folder / ZIP_NAME)
    raise DataError(f"{folder}: no annotations; put {ZIP_NAME} in it, or unpack it there")


def has_annotations(folder: Path) -> bool:
    """Whether a folder holds annotations, packed or unpacked."""
    return (folder / ZIP_NAME).is_file() or all((folder / name).is_dir() for name in FOLDERS)


class _Unpacked:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        # Names are looked up in the listing, so that an id can never become a path outside of the folders.
        self._files = {f"{name}/{file.name}": file for name in FOLDERS for file in (folder / name).iterdir()}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> bytes:
        try:
            with self._files[name].open("rb") as file:
                return _bounded(file.read(_MAX_BYTES + 1))
        except OSError as reason:
            raise DataError(f"cannot be read ({reason.strerror})") from None


class _Zipped:
    def __init__(self, file: Path) -> None:
        self.path = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            raise DataError(f"{file}: not a zip file, or cut short; download it again") from None
        except OSError as reason:
            raise DataError(f"{file}: cannot be read ({reason.strerror})") from None
        # The folders may lie below another one.
        self._files = {"/".join(info.filename.split("/")[-2:]): info for info in self._zip.infolist()}
        if missing := [name for name in FOLDERS if not any(file.startswith(f"{name}/") for file in self._files)]:
            raise DataError(f"{file}: no {' and no '.join(missing)} in it; Flickr30K Entities has both")

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> bytes:
        try:
            with self._zip.open(self._files[name]) as file:
                return _bounded(file.read(_MAX_BYTES + 1))  # bounded, so that a zip bomb is never unpacked
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError):
            raise DataError("damaged inside the zip; download it again") from None
        except (NotImplementedError, RuntimeError):
            raise DataError("encrypted, or compressed by an unknown method; pack it again") from None


def _bounded(content: bytes) -> bytes:
    if len(content) > _MAX_BYTES:
        raise DataError(f"more than {_MAX_BYTES:,} bytes; no annotation is that large")
    return content
