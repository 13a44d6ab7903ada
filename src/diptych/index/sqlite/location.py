"""The file of an index as a location: created, locked for writing, and replaced when its replacement is complete."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from diptych.errors import IndexFileError
from diptych.files import locked_file
from diptych.index.spec import IndexSpec
from diptych.index.sqlite import albums
from diptych.index.sqlite.database import remove_logs
from diptych.index.sqlite.doctor import examine
from diptych.index.sqlite.store import Store
from diptych.progress import ProgressCallback
from diptych.text.tokenisers.stored import tokeniser_file

LOCK_TIMEOUT = 3.0  # seconds to wait for another writer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SQLiteLocation:
    """A path."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        return self.path.exists()

    def open(self, *, write: bool = False) -> Store:
        """The index in the file; the error for a run or a folder names the command that makes an index of it."""
        path = self.path
        if tokeniser_file(path) is not None:
            raise IndexFileError(f"{path}: a run, not an index; index your photos with it: diptych index {path} FOLDER")
        if path.is_dir():
            raise IndexFileError(f"{path}: a folder, not an index; {_what_to_open(path)}")
        return Store.open(path, write=write)

    def create(self, spec: IndexSpec) -> Store:
        """Create the file without entries, open for writing."""
        return Store.create(self.path, spec)

    def locked(self) -> AbstractContextManager[None]:
        """A block within which no other process writes to the file."""
        return locked_file(self.path, IndexFileError, LOCK_TIMEOUT)

    def check_target(self, *, fresh: bool) -> None:
        """Refuse a folder, and to replace a file of another name that is not an index."""
        if self.path.is_dir():
            raise IndexFileError(f"{self.path}: is a folder; name a file")
        if fresh and self.path.exists() and self.path.suffix != ".diptych":
            try:
                Store.open(self.path).close()
            except IndexFileError as reason:
                why = str(reason).removeprefix(f"{self.path}: ").partition(";")[0]
                raise IndexFileError(f"{self.path}: not replaced, because it may not be an index ({why})") from None

    def replacement(self) -> SQLiteLocation:
        """A hidden file beside it."""
        return SQLiteLocation(self.path.parent / f".{self.path.name}.new")

    def replace(self, by: SQLiteLocation) -> None:
        """Rename another file to this one."""
        with suppress(IndexFileError):  # apply its log, for those who are reading it
            Store.open(self.path, write=True).close()
        with albums.locked(self.path):
            self._copy_albums(by.path)
            by.path.replace(self.path)
            remove_logs(self.path)  # SQLite would apply those of the old file to the new one

    def _copy_albums(self, new: Path) -> None:
        """Copy the albums to a new file; a file whose albums cannot be read is kept under another name."""
        try:
            albums.copy_albums(self.path, new)
        except IndexFileError as reason:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            self.path.replace(aside)
            _log.warning("%s: its albums could not be read (%s); the file is kept as %s", self.path, reason, aside)

    def remove(self) -> None:
        """Delete the file and its logs."""
        self.path.unlink(missing_ok=True)
        remove_logs(self.path)

    def examine(self, progress: ProgressCallback | None = None) -> Iterator[str]:
        """One line per fault of the file."""
        return examine(self.path, progress)


def _what_to_open(folder: Path) -> str:
    """What may be meant by a folder: the index that `diptych index` makes of it by default, or to make one."""
    index = Path(f"{folder.absolute().name}.diptych")
    if index.is_file():
        return f"did you mean {index}?"
    name = quote(str(folder))
    return f"make one of it: diptych open {name}, or diptych index starter {name}"
