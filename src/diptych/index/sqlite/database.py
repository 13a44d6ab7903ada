"""The SQLite file of an index: its tables, its connection, and its errors as one line each.

A vector belongs to a content: the bytes of a file, the pixels of a drawn picture, or a text. An entry points to its
content, so that a renamed file keeps its vector, equal files share one, and an unchanged text is not encoded again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import quote

from diptych.errors import IndexFileError
from diptych.files import atomic_write
from diptych.index.sqlite.migrations import FORMAT, migrate

_APPLICATION = 0x44505459  # "DPTY", SQLite's application id
_TIMEOUT = 5.0  # seconds to wait for another writer


class Database:
    """One connection behind a lock, which threads may share; readers and a writer do not block each other.

    A reader whose file has been replaced by another file of the same name continues with the new file.
    """

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self._write = write
        self._lock = threading.RLock()
        self._depth = 0  # of nested blocks
        with self._errors_in_one_line():
            self._connection, self.file = self._connect()  # `file` identifies the file, whatever its name

    @classmethod
    def create(cls, path: Path, spec: Any) -> Database:
        """Create a file without entries for a spec; it exists completely or not at all."""
        if path.exists():
            raise IndexFileError(f"{path}: already exists; name another file")
        try:
            with atomic_write(path) as temporary:
                _make_tables(temporary, spec)
                remove_logs(path)
        except sqlite3.Error as reason:
            raise IndexFileError(_describe(path, reason)) from None
        return cls(path, write=True)

    @property
    def generation(self) -> int:
        """A number that grows with every change by any process."""
        return int(self.rows("SELECT value FROM meta WHERE name = 'generation'")[0][0])

    def rows(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return all rows."""
        with self._lock, self._errors_in_one_line():
            if not self._write and not self._depth and _identity(self.path) not in (None, self.file):
                new = self._connect()  # before closing: if the new file is not an index, the old connection stays
                self._connection.close()
                self._connection, self.file = new
            return self._connection.execute(statement, values).fetchall()

    def batches(self, statement: str, values: Sequence[Any], size: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a statement, at most `size` at a time; within a block, so that all are of the same state."""
        with self._errors_in_one_line():
            cursor = self._connection.execute(statement, values)
            while rows := cursor.fetchmany(size):
                yield rows

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once per row of values, within a transaction."""
        with self._errors_in_one_line():
            self._connection.executemany(statement, rows)

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """Execute a statement that inserts one row, within a transaction, and return its id."""
        with self._errors_in_one_line():
            return int(self._connection.execute(statement, values).lastrowid or 0)

    def meta(self, name: str) -> Any:
        """A value of the table `meta`, or None."""
        found = self.rows("SELECT value FROM meta WHERE name = ?", (name,))
        try:
            return json.loads(found[0][0]) if found else None
        except ValueError:
            raise IndexFileError(_describe(self.path, f"{name} in meta is not JSON")) from None

    def set_meta(self, name: str, value: Any) -> None:
        """Set a value of the table `meta`."""
        self.rows(
            "INSERT INTO meta VALUES(?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, json.dumps(value))
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block within which all reads see the same state."""
        with self._block("BEGIN"):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes are all made, or none of them."""
        with self._block("BEGIN IMMEDIATE"):
            yield
            # The time as well, or two files that were one once could reach the same generation by different changes.
            now = time.time_ns() // 1000
            self.rows("UPDATE meta SET value = max(value + 1, ?) WHERE name = 'generation'", (now,))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The same for what is not about entries: the generation stays, so that nobody reads the vectors again."""
        with self._block("BEGIN IMMEDIATE"):
            yield

    def close(self) -> None:
        """Close the file; unless another process has it open, no other file is left beside it."""
        with self._lock:
            if self._write:
                try:
                    self._connection.execute("PRAGMA journal_mode = DELETE")
                except sqlite3.Error:  # a reader keeps the log, which the next writer removes
                    with suppress(sqlite3.Error):  # the file is complete without it, should somebody copy it
                        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._connection.close()

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        with self._lock:
            if self._depth:  # a nested block is part of the outer one
                yield
                return
            self.rows(begin)
            self._depth += 1
            try:
                yield
                self.rows("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.rollback()
                raise
            finally:
                self._depth -= 1

    def _connect(self) -> tuple[sqlite3.Connection, tuple[int, int] | None]:
        file = _identity(self.path)
        if file is None:
            name = shell_quote(str(self.path))
            raise IndexFileError(f"{self.path}: no such index; make one: diptych index starter FOLDER --into {name}")
        if self.path.is_dir():
            raise IndexFileError(f"{self.path}: is a folder, not an index; name an index file")
        connection = self._open("rw" if self._write else "ro")
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection, file

    def _open(self, mode: str) -> sqlite3.Connection:
        address = f"file:{quote(os.path.abspath(self.path))}?mode={mode}"  # noqa: PTH100 (links are not resolved)
        connection = sqlite3.connect(address, uri=True, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        ((application,),) = connection.execute("PRAGMA application_id")
        ((version,),) = connection.execute("PRAGMA user_version")
        if application != _APPLICATION:
            raise IndexFileError(f"{self.path}: not a Diptych index; name another file")
        if not 0 < version <= FORMAT:
            raise IndexFileError(
                f"{self.path}: an index of format {version}; this version of Diptych reads format {FORMAT}; "
                f"update Diptych, or make the index again: diptych index RUN SOURCE --into {self.path} --fresh"
            )
        if version < FORMAT:
            self._migrate(version)
        if self._write:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("SELECT count(*) FROM meta").fetchall()

    def _migrate(self, version: int) -> None:
        """Bring an older file to the present format; its entries, vectors and ids stay."""
        try:
            with closing(self._open("rw")) as connection:
                migrate(connection)
        except sqlite3.Error as reason:
            raise IndexFileError(
                f"{self.path}: an index of the earlier format {version}, which opening it once with permission to "
                f"write brings up to date ({reason}); check the permissions, then run: diptych index doctor {self.path}"
            ) from None

    @contextmanager
    def _errors_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as reason:
            raise IndexFileError(_describe(self.path, reason)) from None


def remove_logs(path: Path) -> None:
    """Remove the logs beside a file that was replaced or removed; SQLite would apply them to the new file."""
    for end in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _make_tables(path: Path, spec: Any) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA page_size = 16384")  # several vectors fit into one page
        connection.execute("PRAGMA synchronous = OFF")  # the caller syncs the file
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        migrate(connection)
        # The first generation is the time in microseconds, so that an index that replaces another one is ahead of it.
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


def _describe(path: Path, reason: sqlite3.Error | str) -> str:
    """One line about an error of SQLite, with the remedy."""
    error = str(reason)
    if "disk is full" in error:
        return f"{path}: the disk is full; free some space and run the command again; finished work is kept"
    if "locked" in error or "busy" in error:
        return f"{path}: another process is writing to it; wait and try again"
    if "readonly" in error or "unable to open" in error:
        return f"{path}: cannot be opened or written ({error}); check the permissions of the file and its folder"
    if "not a database" in error:
        return f"{path}: not a Diptych index, or its beginning is damaged; name another file"
    return f"{path}: damaged ({error}); `diptych index rebuild {path}` rebuilds it from the images"
