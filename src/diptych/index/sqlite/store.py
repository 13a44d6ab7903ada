"""The index: entries with their vectors and thumbnails, and the model that made them, in one SQLite file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError, IndexFileError, did_you_mean
from diptych.index.encoder import Encodings
from diptych.index.entries import Entry, Filters, Kind
from diptych.index.sqlite.database import Database
from diptych.index.sqlite.vectors import STORAGES, Storage, decode, decode_set

Ids: TypeAlias = Sequence[int] | Integers

# Some entries by their ids, in the order of these; what holds for a text is said of its image.
_NAMED = "FROM json_each(?) AS wanted JOIN entries AS e ON e.id = wanted.value"
_IMAGE = "JOIN entries AS i ON i.id = coalesce(e.image, e.id) JOIN contents AS c ON c.id = i.content"
_TAKEN = "coalesce(c.taken, date(nullif(i.modified, 0) / 1000000000, 'unixepoch', 'localtime'))"


@dataclass(frozen=True)
class IndexSpec:
    """What an index was made by and from.

    `model` is the model's address, and `size` that of its vectors. `root` is the folder that all files lie below;
    drawn pictures have none. `version` is the one of Diptych that began it.
    """

    model: str
    identity: str
    size: int
    rescores: bool
    storage: Storage
    source: str
    root: str | None
    version: str


class Store:
    """An index that is open; threads may share it.

    It has one connection behind a lock: what they ask of it is answered in turn. A change by another process is seen
    with the next question; who needs several answers of one moment asks within `reading`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.path = database.path
        self._made: tuple[int, IndexSpec] | None = None
        _ = self.spec

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Store:
        """The index in a file; one that is missing, damaged, or of another format is an IndexFileError."""
        database = Database(Path(path), write=write)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    @classmethod
    def create(cls, path: str | Path, spec: IndexSpec) -> Store:
        """A new index without entries, open for writing."""
        return cls(Database.create(Path(path), asdict(spec)))

    @property
    def spec(self) -> IndexSpec:
        """What the index was made by and from."""
        generation = self.generation
        if self._made is None or self._made[0] != generation:
            self._made = generation, _spec(self.path, self.database.meta("making"))
        return self._made[1]

    @property
    def generation(self) -> int:
        """A number that grows with every change, whoever makes it."""
        return self.database.generation

    def reading(self) -> AbstractContextManager[None]:
        """A block in which all answers are of one moment; other threads wait until it ends."""
        return self.database.reading()

    def counts(self) -> dict[Kind, int]:
        """How many entries of each kind there are."""
        found = dict(self.database.rows("SELECT kind, count(*) FROM entries GROUP BY kind"))
        return {kind: found.get(kind, 0) for kind in get_args(Kind)}

    def vectors(self, kind: Kind) -> tuple[Integers, Floats]:
        """The ids of all entries of a kind, ascending, and their vectors, (entries, size)."""
        with self.reading():
            spec = self.spec
            rows = self.database.rows(
                "SELECT e.id, c.vector FROM entries AS e JOIN contents AS c ON c.id = e.content "
                "WHERE e.kind = ? ORDER BY e.id",
                (kind,),
            )
        try:
            vectors = decode([row[1] for row in rows], spec.storage, spec.size)
        except IndexFileError as reason:
            raise IndexFileError(
                f"{self.path}: {reason}; `diptych index rebuild {self.path}` makes it anew from the images"
            ) from None
        return np.array([row[0] for row in rows], np.int64), vectors

    def sets(self, ids: Ids) -> tuple[Floats, ...] | None:
        """The sets of these entries, all of one kind, (places, size) each; none where they are one vector."""
        rows = self._of(ids, "c.sets", "JOIN contents AS c ON c.id = e.content")
        if all(own is None for (own,) in rows):
            return None
        return tuple(decode_set(own) for (own,) in rows)

    def encoded(self, id: int) -> tuple[Kind, Encodings]:
        """What one entry is, and how the model saw it."""
        with self.reading():
            spec = self.spec
            contents = "JOIN contents AS c ON c.id = e.content"
            ((kind, vector, own),) = self._of([id], "e.kind, c.vector, c.sets", contents)
        sets = None if own is None else (decode_set(own),)
        return kind, Encodings(decode([vector], spec.storage, spec.size), sets)

    def looks(self, ids: Ids) -> NDArray[np.uint64]:
        """What each of these entries' images looks like, roughly: 64 bits, few of which differ between near-equals."""
        return np.array([look or 0 for (look,) in self._of(ids, "c.look", _IMAGE)], np.int64).view(np.uint64)

    def contents_of(self, ids: Ids) -> Integers:
        """A number for the content of each of these entries; equal files share one, and so do equal texts."""
        return np.array([content for (content,) in self._of(ids, "e.content")], np.int64)

    def entries(self, ids: Ids) -> list[Entry]:
        """These entries, in this order."""
        columns = (
            "e.id, e.kind, e.key, i.id, e.text, i.path, i.folder, i.split, "
            f"{_TAKEN}, c.width, c.height, coalesce(i.columns, '{{}}')"
        )
        with self.reading():
            root = self.spec.root
            rows = self._of(ids, columns, _IMAGE)
        found = []
        for id, kind, key, image, text, path, folder, split, taken, width, height, columns in rows:
            where = None if path is None or root is None else str(Path(root, path))
            size, own = (width or 0, height or 0), json.loads(columns)
            found.append(Entry(id, kind, key, image, text, where, folder, split, taken, *size, own))
        return found

    def captions(self, image_ids: Ids) -> dict[int, list[str]]:
        """The texts of each of these images."""
        captions: dict[int, list[str]] = {int(image): [] for image in image_ids}
        rows = self.database.rows(
            "SELECT image, text FROM entries WHERE image IN (SELECT value FROM json_each(?)) ORDER BY place",
            (_json(image_ids),),
        )
        for image, text in rows:
            captions[image].append(text)
        return captions

    def matching(self, kind: Kind, filters: Filters) -> Integers:
        """The ids of the entries of a kind that filters let through, ascending; texts go by their image."""
        conditions = ["e.kind = ?"]
        values: list[str] = [kind]
        for condition, *own in self._conditions(filters):
            conditions.append(condition)
            values += own
        statement = f"SELECT e.id FROM entries AS e {_IMAGE} WHERE {' AND '.join(conditions)} ORDER BY e.id"
        return np.array([row[0] for row in self.database.rows(statement, values)], np.int64)

    def columns(self) -> list[str]:
        """The columns of the source's table."""
        return self._distinct("SELECT DISTINCT json_each.key FROM entries, json_each(entries.columns)")

    def folders(self) -> list[str]:
        """All folders of the source that hold an image somewhere below them."""
        own = self._distinct("SELECT DISTINCT folder FROM entries WHERE folder != ''")
        return sorted(
            {"/".join(parts[:depth]) for parts in (f.split("/") for f in own) for depth in range(1, 1 + len(parts))}
        )

    def splits(self) -> list[str]:
        """The splits of the source."""
        return self._distinct("SELECT DISTINCT split FROM entries WHERE split IS NOT NULL")

    def thumbnail(self, id: int) -> bytes | None:
        """A small JPEG of an image, or of a text's image; None for an entry that is not there."""
        rows = self.database.rows(
            "SELECT t.jpeg FROM entries AS e JOIN entries AS i ON i.id = coalesce(e.image, e.id) "
            "JOIN thumbnails AS t ON t.content = i.content WHERE e.id = ?",
            (int(id),),
        )
        return rows[0][0] if rows else None

    def problems(self) -> list[tuple[str, str]]:
        """What of the source was left out, by its key, and why."""
        return [(key, reason) for key, reason in self.database.rows("SELECT key, reason FROM problems ORDER BY key")]

    def meta(self, name: str) -> Any:
        """What is noted of the index under a name, such as `synced` or `storage_cost`; None where nothing is."""
        return self.database.meta(name)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _distinct(self, statement: str) -> list[str]:
        return sorted(row[0] for row in self.database.rows(statement))

    def _of(self, ids: Ids, columns: str, joined: str = "") -> list[tuple[Any, ...]]:
        """Columns of some entries, in their order."""
        rows = self.database.rows(f"SELECT {columns} {_NAMED} {joined} ORDER BY wanted.key", (_json(ids),))
        if len(rows) != len(ids):
            known = {row[0] for row in self.database.rows(f"SELECT e.id {_NAMED}", (_json(ids),))}
            unknown = next((id for id in ids if id not in known), None)
            raise DataError(f"{self.path}: no entry {unknown}; it may have been removed since")
        return rows

    def _conditions(self, filters: Filters) -> Iterator[tuple[str, ...]]:
        """What filters ask for in SQL, each with its values."""
        if filters.folder is not None and (folder := filters.folder.strip("/")) not in ("", "."):
            yield "(i.folder = ? OR (i.folder > ? AND i.folder < ?))", folder, f"{folder}/", f"{folder}0"  # 0 follows /
        for name, sign in (("since", ">="), ("until", "<=")):
            if (day := getattr(filters, name)) is not None:
                yield f"{_TAKEN} {sign} ?", _day(name, day)
        if filters.split is not None:
            if filters.split not in (known := self.splits()):
                raise DataError(f"no split {filters.split!r} in the index; {_offer(filters.split, known, 'splits')}")
            yield "i.split = ?", filters.split
        known = self.columns() if filters.columns else []
        for column, value in filters.columns:
            if column not in known:
                raise DataError(f"no column {column!r} in the index; {_offer(column, known, 'columns')}")
            yield "EXISTS (SELECT 1 FROM json_each(i.columns) AS o WHERE o.key = ? AND o.value = ?)", column, value


def _spec(path: Path, found: Any) -> IndexSpec:
    try:
        spec = IndexSpec(**found)
        valid = spec.storage in STORAGES and spec.size > 0
    except TypeError:
        valid = False
    if not valid:
        raise IndexFileError(
            f"{path}: does not say what it was made from; make it anew: diptych index RUN SOURCE --into {path} --fresh"
        )
    return spec


def _json(ids: Ids) -> str:
    return json.dumps([int(id) for id in ids])


def _day(name: str, day: str) -> str:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", day, re.ASCII):
            return date.fromisoformat(day).isoformat()
    except ValueError:
        pass
    raise DataError(f"{name} {day!r}: not a day; write it like 2026-11-16")


def _offer(name: str, known: list[str], what: str) -> str:
    return did_you_mean(name, known) if known else f"its source has no {what}"
