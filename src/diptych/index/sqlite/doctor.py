"""Checks an index for damage: the file, vectors against their checksums, thumbnails, and references."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from diptych.errors import IndexFileError
from diptych.index.sqlite.store import Store
from diptych.index.vectors import checksum, decode, decode_set

_BATCH = 500
_SQLITE_MESSAGES = 10  # at most

_WRONG_REFERENCES = {
    "the entry has no content": "SELECT key FROM entries WHERE content NOT IN (SELECT id FROM contents)",
    "the entry has a content of another kind": (
        "SELECT e.key FROM entries AS e JOIN contents AS c ON c.id = e.content WHERE c.kind != e.kind"
    ),
    "the text has no image": (
        "SELECT key FROM entries WHERE kind = 'text' "
        "AND (image IS NULL OR image NOT IN (SELECT id FROM entries WHERE kind = 'image'))"
    ),
    "the image has no thumbnail": (
        "SELECT key FROM entries WHERE kind = 'image' AND content NOT IN (SELECT content FROM thumbnails)"
    ),
}


def examine(path: str | Path, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """One line per fault of an index; none if it is sound."""
    try:
        store = Store.open(path)
    except IndexFileError as reason:
        if not Path(path).exists():
            raise
        yield str(reason)
        return
    try:
        yield from _examine(store, progress)
    except IndexFileError as reason:  # SQLite cannot continue
        yield str(reason)
    finally:
        store.close()


def _examine(store: Store, progress: Callable[[int, int], None] | None) -> Iterator[str]:
    messages = [row[0] for row in store.database.rows(f"PRAGMA quick_check({_SQLITE_MESSAGES})")]
    if messages != ["ok"]:
        yield from (f"{store.path}: {' '.join(str(message).split())}" for message in messages)
    for fault, statement in _WRONG_REFERENCES.items():
        yield from (f"{key}: {fault}" for (key,) in store.database.rows(statement))
    ((total,),) = store.database.rows("SELECT count(*) FROM contents")
    last, done = 0, 0
    while rows := _contents_after(store, last):
        for content, saved, vector, vector_set, jpeg in rows:
            if found := _fault_of_vector(store, saved, vector, vector_set) or _fault_of_thumbnail(jpeg):
                yield f"{_name(store, content)}: {found}"
            last = content
            done += 1
            if progress:
                progress(done, total)


def _contents_after(store: Store, last: int) -> list[tuple[Any, ...]]:
    return store.database.rows(
        "SELECT c.id, c.checksum, c.vector, c.sets, t.jpeg FROM contents AS c "
        "LEFT JOIN thumbnails AS t ON t.content = c.id WHERE c.id > ? ORDER BY c.id LIMIT ?",
        (last, _BATCH),
    )


def _fault_of_vector(store: Store, saved: int, vector: bytes, vector_set: bytes | None) -> str | None:
    if checksum(vector, vector_set) != saved:
        return "its vector does not match its checksum"
    spec = store.spec
    try:
        values = decode([vector], spec.storage, spec.size)
        members = decode_set(vector_set) if vector_set is not None else values
    except IndexFileError as reason:
        return str(reason)
    return None if np.isfinite(values).all() and np.isfinite(members).all() else "its vector is not finite"


def _fault_of_thumbnail(jpeg: bytes | None) -> str | None:
    if jpeg is None:
        return None
    try:
        with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
            image.load()
    except Exception as reason:  # decoders raise any exception for a damaged image
        return f"its thumbnail cannot be decoded ({' '.join(str(reason).split())})"
    return None


def _name(store: Store, content: int) -> str:
    """The key of the first entry with a content."""
    rows = store.database.rows("SELECT key FROM entries WHERE content = ? ORDER BY id LIMIT 1", (content,))
    return rows[0][0] if rows else f"content {content}"
