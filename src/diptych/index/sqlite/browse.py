"""Reads an index for browsing: its images by day, newest first, page by page, and its folders with their counts.

A page begins after the last image of the page before it (its day and its id), so that the hundredth page takes no
longer than the first.
"""

from __future__ import annotations

from diptych.index.entries import Filters
from diptych.index.sqlite import filtering
from diptych.index.sqlite.albums import check_album
from diptych.index.sqlite.database import Database

_PAGE = """
SELECT i.day, i.id FROM {images} AS i WHERE i.kind = 'image' {conditions} ORDER BY i.day DESC, i.id DESC LIMIT ?
"""
# Of a video only the first frame; the keys of all of them begin alike and end in digits, which : follows.
_FIRST_OF_VIDEO = """
 AND (i.moment IS NULL OR NOT EXISTS (
  SELECT 1 FROM entries AS f WHERE f.moment IS NOT NULL AND f.moment < i.moment
  AND f.key > rtrim(i.key, '0123456789.') AND f.key < rtrim(i.key, '0123456789.') || ':'))
"""
# The second part takes away all but one frame of each video.
_BY_FOLDER = """
SELECT folder, count(*) FROM entries WHERE kind = 'image' AND folder != '' GROUP BY folder UNION ALL
SELECT folder, count(DISTINCT rtrim(key, '0123456789.')) - count(*) FROM entries
WHERE moment IS NOT NULL AND folder != '' GROUP BY folder
"""
# CROSS JOIN makes SQLite begin with the album, which may have a few images of very many.
_OF_ALBUM = """
(SELECT e.day, e.id, e.folder, e.kind, e.split, e.columns FROM album_images AS a
CROSS JOIN contents AS c ON c.kind = 'image' AND c.hash = a.hash
CROSS JOIN entries AS e ON e.content = c.id AND e.kind = 'image' WHERE a.album = ?)
"""

Place = tuple[str, int]  # the day and the id of an image


def newest(database: Database, count: int, after: Place | None = None, filters: Filters | None = None) -> list[Place]:
    """The next `count` images that pass the filters, by day, newest first, after a place.

    A video is shown by its first frame, in an album by those that it has.
    """
    filters = filters or Filters()
    images, values = "entries", list[str | int]()
    if filters.album is not None:
        check_album(database, filters.album)
        images, values = _OF_ALBUM, [filters.album]
    conditions = _FIRST_OF_VIDEO if filters.album is None else ""
    for condition, *parameters in filtering.conditions(database, filters):
        conditions += f" AND {condition}"
        values += parameters
    if after is not None:
        conditions += " AND (i.day, i.id) < (?, ?)"
        values += [*after]
    rows = database.rows(_PAGE.format(images=images, conditions=conditions), (*values, count))
    return [(day, id) for day, id in rows]


def subfolders(database: Database, parent: str = "") -> list[tuple[str, int, bool]]:
    """The folders directly in a folder: path, how many images `newest` shows of it, and whether it has folders."""
    start = f"{parent.strip('/')}/" if parent.strip("/") else ""
    counted: dict[str, tuple[int, bool]] = {}
    for folder, images in database.rows(_BY_FOLDER):
        if not folder.startswith(start):
            continue
        name, _, below = folder[len(start) :].partition("/")
        total, deeper = counted.get(name, (0, False))
        counted[name] = (total + images, deeper or bool(below))
    return [(start + name, images, deeper) for name, (images, deeper) in sorted(counted.items())]
