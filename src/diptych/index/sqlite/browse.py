"""Reads an index for browsing: its images by day, newest first, page by page, and its folders with their counts.

A page begins after the last image of the page before it (its day and its id), so that the hundredth page takes no
longer than the first.
"""

from __future__ import annotations

from diptych.index.sqlite.database import Database

_PAGE = """
SELECT day, id FROM {images} WHERE kind = 'image' {conditions} ORDER BY day DESC, id DESC LIMIT ?
"""
# Of a video only the first frame; the keys of all of them begin alike and end in digits, which : follows.
_FIRST_OF_VIDEO = """
 AND (moment IS NULL OR NOT EXISTS (
  SELECT 1 FROM entries AS f WHERE f.moment IS NOT NULL AND f.moment < entries.moment
  AND f.key > rtrim(entries.key, '0123456789.') AND f.key < rtrim(entries.key, '0123456789.') || ':'))
"""
# CROSS JOIN makes SQLite begin with the album, which may have a few images of very many.
_OF_ALBUM = """
(SELECT e.day, e.id, e.folder, e.kind FROM album_images AS a
CROSS JOIN contents AS c ON c.kind = 'image' AND c.hash = a.hash
CROSS JOIN entries AS e ON e.content = c.id AND e.kind = 'image' WHERE a.album = ?)
"""

Place = tuple[str, int]  # the day and the id of an image


def newest(
    database: Database, count: int, after: Place | None = None, folder: str = "", album: int | None = None
) -> list[Place]:
    """The next `count` images by day, newest first, after a place, in a folder and below it, of an album.

    A video is shown by its first frame, in an album by those that it has.
    """
    conditions = _FIRST_OF_VIDEO if album is None else ""
    values: list[str | int] = [] if album is None else [album]
    if folder := folder.strip("/"):
        conditions += " AND (folder = ? OR (folder > ? AND folder < ?))"
        values += [folder, f"{folder}/", f"{folder}0"]  # 0 follows /
    if after is not None:
        conditions += " AND (day, id) < (?, ?)"
        values += [*after]
    images = "entries" if album is None else _OF_ALBUM
    rows = database.rows(_PAGE.format(images=images, conditions=conditions), (*values, count))
    return [(day, id) for day, id in rows]


def subfolders(database: Database, parent: str = "") -> list[tuple[str, int, bool]]:
    """The folders directly in a folder: path, number of images in it and below, and whether it has folders itself."""
    start = f"{parent.strip('/')}/" if parent.strip("/") else ""
    counted: dict[str, tuple[int, bool]] = {}
    statement = "SELECT folder, count(*) FROM entries WHERE kind = 'image' AND folder != '' GROUP BY folder"
    for folder, images in database.rows(statement):
        if not folder.startswith(start):
            continue
        name, _, below = folder[len(start) :].partition("/")
        total, deeper = counted.get(name, (0, False))
        counted[name] = (total + images, deeper or bool(below))
    return [(start + name, images, deeper) for name, (images, deeper) in sorted(counted.items())]
