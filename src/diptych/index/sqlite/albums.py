"""The albums of an index file: read, changed through a connection of their own, and carried over to a new file.

A change of an album leaves the generation of the index as it is, because entries and vectors stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from diptych.errors import DataError, IndexFileError, NotFoundError
from diptych.files import locked_file
from diptych.index.albums import FAVOURITES, Album, clean_name, fold
from diptych.index.backend import Ids
from diptych.index.sqlite.database import Database

# The contents of an album that the index has; `max` makes `cover` that of the row with the latest addition.
_ALL = """
SELECT a.id, a.name, count(e.id), count(DISTINCT i.hash) - count(DISTINCT e.content),
  e.id AS cover, max(CASE WHEN e.id IS NOT NULL THEN i.added END)
FROM albums AS a LEFT JOIN album_images AS i ON i.album = a.id
LEFT JOIN contents AS c ON c.kind = 'image' AND c.hash = i.hash
LEFT JOIN entries AS e ON e.content = c.id AND e.kind = 'image'
GROUP BY a.id ORDER BY a.id != 0, a.folded
"""
_HASHES = """
SELECT wanted.value, c.hash FROM json_each(?) AS wanted LEFT JOIN entries AS e ON e.id = wanted.value
LEFT JOIN entries AS image ON image.id = coalesce(e.image, e.id) LEFT JOIN contents AS c ON c.id = image.content
"""
# A content that another file still has was not edited: its file was renamed.
_KEEP_EDITED = """
INSERT OR IGNORE INTO album_images SELECT i.album, new.hash, i.added FROM edited_images AS edited
JOIN contents AS old ON old.id = edited.old JOIN contents AS new ON new.id = edited.new
JOIN album_images AS i ON i.hash = old.hash
WHERE NOT EXISTS (SELECT 1 FROM entries WHERE content = old.id)
"""
_EDITION = "album_edition"
LOCK_TIMEOUT = 5.0  # seconds to wait for others who change albums


def edition(database: Database) -> int:
    """A number that grows with every change of an album."""
    return int(database.meta(_EDITION) or 0)


def albums(database: Database) -> list[Album]:
    """All albums: the favourites, then the others by name."""
    return [Album(*row[:5]) for row in database.rows(_ALL)]


def album_names(database: Database, image: int) -> dict[int, str]:
    """The names of the albums that an image is in, by their ids."""
    rows = database.rows(
        "SELECT a.id, a.name FROM entries AS e JOIN contents AS c ON c.id = e.content "
        "JOIN album_images AS i ON i.hash = c.hash JOIN albums AS a ON a.id = i.album "
        "WHERE e.id = ? AND e.kind = 'image' ORDER BY a.id != 0, a.folded",
        (int(image),),
    )
    return dict(rows)


def check_album(database: Database, album: int) -> None:
    """Refuse an album that the index does not have."""
    if not database.rows("SELECT 1 FROM albums WHERE id = ?", (int(album),)):
        raise NotFoundError(f"no album {album} in this index; it may have been deleted")


def ids_of(database: Database, names: Sequence[str]) -> dict[str, int]:
    """The ids of images by their keys, or by the paths of their files below the indexed folder."""
    statement = (
        "SELECT {0}, id FROM entries WHERE kind = 'image' AND {0} IN (SELECT value FROM json_each(?)) ORDER BY id DESC"
    )
    wanted = (json.dumps(list(names)),)
    by_path, by_key = (dict(database.rows(statement.format(column), wanted)) for column in ("path", "key"))
    return {**by_path, **by_key}


def locked(path: Path) -> AbstractContextManager[None]:
    """A block within which nobody else changes the albums of a file, or replaces it; a sync may be running."""
    return locked_file(path.with_name(f"{path.name}.albums"), IndexFileError, LOCK_TIMEOUT)


@contextmanager
def editing(path: Path) -> Iterator[Editor]:
    """An editor of the albums of a file, in one transaction; another process may read the file, and index into it."""
    with locked(path), closing(Database(path, write=True)) as database, database.changing():
        yield Editor(database)


class Editor:
    """Changes albums within a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str) -> int:
        """Create an album; its id is never that of an album that was deleted."""
        name = self._free(name)
        number = self._count()
        self._database.insert("INSERT INTO albums VALUES(?, ?, ?, ?)", (number, name, fold(name), _now()))
        return number

    def rename(self, album: int, name: str) -> None:
        """Give an album another name."""
        self._check_own(album, "renamed")
        name = self._free(name, album)
        self._database.rows("UPDATE albums SET name = ?, folded = ? WHERE id = ?", (name, fold(name), album))
        self._count()

    def delete(self, album: int) -> None:
        """Delete an album; its images stay in the index."""
        self._check_own(album, "deleted")
        self._database.rows("DELETE FROM albums WHERE id = ?", (album,))
        self._count()

    def add(self, album: int, entries: Ids) -> int:
        """Add images to an album, and return how many it did not have; a text stands for its image."""
        now = _now()
        rows = [(album, hash, now) for hash in self._hashes(album, entries)]
        before = self._size(album)
        self._database.each("INSERT OR IGNORE INTO album_images VALUES(?, ?, ?)", rows)
        self._count()
        return self._size(album) - before

    def remove(self, album: int, entries: Ids) -> int:
        """Remove images from an album, and return how many it had."""
        rows = [(album, hash) for hash in self._hashes(album, entries)]
        before = self._size(album)
        self._database.each("DELETE FROM album_images WHERE album = ? AND hash = ?", rows)
        self._count()
        return before - self._size(album)

    def _check_own(self, album: int, what: str) -> None:
        check_album(self._database, album)
        if album == FAVOURITES:
            raise DataError(f"the favourites cannot be {what}; create an album of your own")

    def _free(self, name: str, album: int | None = None) -> str:
        """The name, if no other album has it."""
        name = clean_name(name)
        found = self._database.rows("SELECT id, name FROM albums WHERE folded = ?", (fold(name),))
        if found and found[0][0] != album:
            raise DataError(f"there is already an album {found[0][1]!r}; choose another name")
        return name

    def _hashes(self, album: int, entries: Ids) -> list[bytes]:
        check_album(self._database, album)
        found = self._database.rows(_HASHES, (json.dumps([int(id) for id in entries]),))
        for id, hash in found:
            if hash is None:
                raise NotFoundError(f"no entry {id} in this index; it may have been removed")
        return [hash for _, hash in found]

    def _size(self, album: int) -> int:
        return int(self._database.rows("SELECT count(*) FROM album_images WHERE album = ?", (album,))[0][0])

    def _count(self) -> int:
        """Note that an album has changed; returns the new edition."""
        number = edition(self._database) + 1
        self._database.set_meta(_EDITION, number)
        return number


def keep_edited_images(database: Database) -> None:
    """Put the images whose files were edited into the albums that they were in before; call it when a sync ends."""
    database.rows(_KEEP_EDITED)
    database.rows("DELETE FROM edited_images")


def copy_albums(old: Path, new: Path) -> None:
    """Copy all albums to another file of the same images, which nobody uses yet.

    An image whose file was edited since the old index saw it stays in its albums, if both have the same source.
    """
    source = Database(old, write=False)
    with closing(source), source.reading(), closing(Database(new, write=True)) as target, target.changing():
        _copy(source, target)


def _copy(source: Database, target: Database) -> None:
    target.each("INSERT OR REPLACE INTO albums VALUES(?, ?, ?, ?)", source.rows("SELECT * FROM albums"))
    images = source.rows("SELECT album, hash, added FROM album_images")
    target.each("INSERT OR REPLACE INTO album_images VALUES(?, ?, ?)", images)
    target.set_meta(_EDITION, edition(source) + 1)
    if (source.meta("making") or {}).get("source") != (target.meta("making") or {}).get("source"):
        return
    before, after = _hashes_by_key(source), _hashes_by_key(target)
    edited: dict[bytes, set[bytes]] = {}
    old, new = set(before.values()), set(after.values())
    for key in before.keys() & after.keys():
        if before[key] not in new and after[key] not in old:
            edited.setdefault(before[key], set()).add(after[key])
    added = [(album, other, at) for album, hash, at in images for other in edited.get(hash, ())]
    target.each("INSERT OR IGNORE INTO album_images VALUES(?, ?, ?)", added)


def _hashes_by_key(database: Database) -> dict[str, bytes]:
    statement = "SELECT e.key, c.hash FROM entries AS e JOIN contents AS c ON c.id = e.content WHERE e.kind = 'image'"
    return dict(database.rows(statement))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
