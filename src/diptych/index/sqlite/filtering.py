"""The filters of a search or of a list, as conditions in SQL on an image: its row of `entries` is `i`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diptych.errors import DataError, did_you_mean
from diptych.index.entries import Filters
from diptych.index.sqlite.database import Database


def conditions(database: Database, filters: Filters) -> Iterator[tuple[str, ...]]:
    """The condition of every filter but the album, each with its values; the index must have what they name."""
    if filters.folder is not None and (folder := filters.folder.strip("/")) not in ("", "."):
        yield "(i.folder = ? OR (i.folder > ? AND i.folder < ?))", folder, f"{folder}/", f"{folder}0"  # 0 follows /
    if filters.since is not None:
        yield "i.day >= ?", filters.since
    if filters.until is not None:
        yield "(i.day != '' AND i.day <= ?)", filters.until
    if filters.split is not None:
        if filters.split not in (known := splits(database)):
            raise DataError(f"no split {filters.split!r} in the index; {_suggest(filters.split, known, 'splits')}")
        yield "i.split = ?", filters.split
    known = columns(database) if filters.columns else []
    for column, value in filters.columns:
        if column not in known:
            raise DataError(f"no column {column!r} in the index; {_suggest(column, known, 'columns')}")
        yield "EXISTS (SELECT 1 FROM json_each(i.columns) AS o WHERE o.key = ? AND o.value = ?)", column, value


def splits(database: Database) -> list[str]:
    """The splits of the source."""
    return _distinct(database, "SELECT DISTINCT split FROM entries WHERE split IS NOT NULL")


def columns(database: Database) -> list[str]:
    """The columns of the source's table."""
    return _distinct(
        database, "SELECT DISTINCT o.key FROM entries AS i, json_each(i.columns) AS o WHERE i.columns IS NOT NULL"
    )


def _distinct(database: Database, statement: str) -> list[str]:
    return sorted(row[0] for row in database.rows(statement))


def _suggest(name: str, known: Sequence[str], kind: str) -> str:
    return did_you_mean(name, known) if known else f"its source has no {kind}"
