"""The words in the pictures of an index: what was read, what is still to be read, and whether it is to be read."""

from __future__ import annotations

from collections.abc import Sequence

from diptych.index.sqlite.database import Database
from diptych.index.sqlite.migrations import ADD_IMAGE_WORDS


def unread(database: Database) -> list[tuple[int, str, float | None]]:
    """The contents whose pictures were not read yet, each with the key of one of its images, and its moment."""
    statement = (
        "SELECT content, min(key), moment FROM entries WHERE kind = 'image' "
        "AND content NOT IN (SELECT content FROM picture_words) GROUP BY content ORDER BY content"
    )
    return [(content, key, moment) for content, key, moment in database.rows(statement)]


def add(database: Database, found: Sequence[tuple[int, str]]) -> None:
    """Note the words of some contents, and make their images searchable by them."""
    with database.transaction():
        database.each("INSERT OR REPLACE INTO picture_words VALUES(?, ?)", found)
        contents = [(content,) for content, words in found if words]
        database.each("DELETE FROM image_words WHERE rowid IN (SELECT id FROM entries WHERE content = ?)", contents)
        database.each(f"{ADD_IMAGE_WORDS} AND image.content = ?", contents)
