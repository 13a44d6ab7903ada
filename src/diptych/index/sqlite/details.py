"""Reads what an index file knows about one image beyond its entry."""

from __future__ import annotations

from diptych.errors import DataError
from diptych.index.details import DaySource, ImageDetails
from diptych.index.sqlite.database import Database

_DETAILS = """
SELECT e.size, c.taken, nullif(e.day, ''), d.camera, d.latitude, d.longitude, e.moment, w.words
FROM entries AS e JOIN contents AS c ON c.id = e.content LEFT JOIN details AS d ON d.content = c.id
LEFT JOIN picture_words AS w ON w.content = c.id WHERE e.id = ? AND e.kind = 'image'
"""


def details(database: Database, image: int) -> ImageDetails:
    """The details of an image; a DataError if there is no such image."""
    rows = database.rows(_DETAILS, (int(image),))
    if not rows:
        raise DataError(f"{database.path}: no image {image}; it may have been removed meanwhile")
    size, taken, day, *rest = rows[0]
    source: DaySource | None = None if day is None else "file" if taken is None else "taken"
    return ImageDetails(size or None, taken, day, source, *rest)
