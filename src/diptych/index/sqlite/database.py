"""The SQLite file of an index: its tables, its one connection, and what is wrong with it in one line.

A vector belongs to a content, which is the bytes of a file, the pixels of a drawn picture, or a text; an entry points
to its content. So a renamed file keeps its vector, equal files share one, and an unchanged text is not encoded again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from diptych.errors import IndexFileError
from diptych.files import atomic_write

FORMAT = 1
_APPLICATION = 0x44505459  # "DPTY", where SQLite keeps whose file it is
_PATIENCE = 5.0  # seconds to wait for somebody who is writing

# What is large comes last: SQLite reads a row from its beginning. Details are what else the source says of an image,
# as one string that changes with it, and the place of a text is its number among those of its image.
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE contents(
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, hash BLOB NOT NULL, checksum INTEGER NOT NULL,
  look INTEGER, width INTEGER, height INTEGER, taken TEXT, vector BLOB NOT NULL, sets BLOB, UNIQUE(kind, hash));
CREATE TABLE thumbnails(content INTEGER PRIMARY KEY REFERENCES contents ON DELETE CASCADE, jpeg BLOB NOT NULL);
CREATE TABLE entries(
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key TEXT NOT NULL,
  content INTEGER NOT NULL REFERENCES contents, image INTEGER REFERENCES entries ON DELETE CASCADE,
  path TEXT, folder TEXT NOT NULL DEFAULT '', size INTEGER, modified INTEGER, split TEXT, columns TEXT, details TEXT,
  text TEXT, place INTEGER);
CREATE UNIQUE INDEX image_keys ON entries(key) WHERE kind = 'image';
CREATE INDEX texts_of_images ON entries(image) WHERE image IS NOT NULL;
CREATE INDEX entries_of_contents ON entries(content);
CREATE TABLE problems(key TEXT PRIMARY KEY, size INTEGER, modified INTEGER, reason TEXT NOT NULL)
  WITHOUT ROWID;
"""


class Database:
    """One connection behind a lock, so that threads may share it; readers do not wait for a writer, nor it for them.

    A reader whose file was replaced by another under the same name reads that one from then on.
    """

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self._write = write
        self._lock = threading.RLock()
        self._within = 0
        with self._explained():
            self._connection, self.file = self._connect()  # which file it is, whatever its name

    @classmethod
    def create(cls, path: Path, spec: Any) -> Database:
        """A new file without entries that says what it is made from; it is there as a whole, or not at all."""
        if path.exists():
            raise IndexFileError(f"{path}: is there already; name another file")
        try:
            with atomic_write(path) as temporary:
                _make_tables(temporary, spec)
                remove_logs(path)
        except sqlite3.Error as reason:
            raise IndexFileError(_explanation(path, reason)) from None
        return cls(path, write=True)

    @property
    def generation(self) -> int:
        """A number that grows with every change, whoever makes it."""
        return int(self.rows("SELECT value FROM meta WHERE name = 'generation'")[0][0])

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self._lock, self._explained():
            if not self._write and not self._within and _identity(self.path) not in (None, self.file):
                fresh = self._connect()  # first: the old connection is kept where the new file is no index
                self._connection.close()
                self._connection, self.file = fresh
            return self._connection.execute(statement, values).fetchall()

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """A statement for each of some rows, within a transaction."""
        with self._explained():
            self._connection.executemany(statement, rows)

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """A statement that adds one row, within a transaction; gives its id."""
        with self._explained():
            return int(self._connection.execute(statement, values).lastrowid or 0)

    def meta(self, name: str) -> Any:
        """What the file says of itself under a name, or None."""
        found = self.rows("SELECT value FROM meta WHERE name = ?", (name,))
        try:
            return json.loads(found[0][0]) if found else None
        except ValueError:
            raise IndexFileError(_explanation(self.path, f"no JSON under the name {name}")) from None

    def set_meta(self, name: str, value: Any) -> None:
        """Say something of the file itself, within a transaction."""
        self.rows(
            "INSERT INTO meta VALUES(?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, json.dumps(value))
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """As long as the block runs, all that is read is of one moment."""
        with self._block("BEGIN"):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that the block changes, or nothing."""
        with self._block("BEGIN IMMEDIATE"):
            yield
            self.rows("UPDATE meta SET value = value + 1 WHERE name = 'generation'")

    def close(self) -> None:
        """Close the file; if nobody else has it open, no other file is left beside it."""
        with self._lock:
            if self._write:
                with suppress(sqlite3.Error):  # who reads at this moment keeps the log, and the next writer clears it
                    self._connection.execute("PRAGMA journal_mode = DELETE")
            self._connection.close()

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        with self._lock:
            if self._within:  # a block within a block is part of it
                yield
                return
            self.rows(begin)
            self._within += 1
            try:
                yield
                self.rows("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.rollback()
                raise
            finally:
                self._within -= 1

    def _connect(self) -> tuple[sqlite3.Connection, tuple[int, int] | None]:
        file = _identity(self.path)
        if file is None:
            raise IndexFileError(f"{self.path}: no such index; make it: diptych index RUN SOURCE --into {self.path}")
        if self.path.is_dir():
            raise IndexFileError(f"{self.path}: is a folder, not an index; name the file of one")
        connection = self._opened("rw" if self._write else "ro")
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection, file

    def _opened(self, mode: str) -> sqlite3.Connection:
        address = f"file:{quote(os.path.abspath(self.path))}?mode={mode}"  # noqa: PTH100 (links stay as they are)
        connection = sqlite3.connect(
            address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        ((application,),) = connection.execute("PRAGMA application_id")
        ((form,),) = connection.execute("PRAGMA user_version")
        if application != _APPLICATION:
            raise IndexFileError(f"{self.path}: not an index of Diptych; name another file")
        if form != FORMAT:
            raise IndexFileError(
                f"{self.path}: an index of format {form}, and this version reads format {FORMAT}; "
                f"update Diptych, or make it anew: diptych index RUN SOURCE --into {self.path} --fresh"
            )
        if self._write:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("SELECT count(*) FROM meta").fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as reason:
            raise IndexFileError(_explanation(self.path, reason)) from None


def remove_logs(path: Path) -> None:
    """Remove what lies beside a file that is replaced or gone; SQLite would take it for a part of the new one."""
    for end in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _make_tables(path: Path, spec: Any) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA page_size = 16384")  # several vectors a page, so that little of one is left over
        connection.execute("PRAGMA synchronous = OFF")  # who asked for the file sees to that
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.executescript(_TABLES)
        # In microseconds, and one more with every change: an index that replaces another is ahead of it.
        first = {"generation": time.time_ns() // 1000, "making": spec}
        connection.executemany("INSERT INTO meta VALUES(?, ?)", [(name, json.dumps(first[name])) for name in first])
    finally:
        connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _explanation(path: Path, reason: sqlite3.Error | str) -> str:
    """One line about what SQLite says, with the remedy."""
    said = str(reason)
    if "disk is full" in said:
        return f"{path}: the disk is full; free some space and run the command again: what was finished is kept"
    if "locked" in said or "busy" in said:
        return f"{path}: another process is writing to it; wait for that and try again"
    if "readonly" in said or "unable to open" in said:
        return f"{path}: cannot be opened or written ({said}); check the permissions of the file and its folder"
    if "not a database" in said:
        return f"{path}: not an index of Diptych, or damaged where it begins; name another file"
    return f"{path}: damaged ({said}); `diptych index rebuild {path}` makes it anew from the images"
