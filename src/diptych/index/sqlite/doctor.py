"""Whether an index is sound: its file, its vectors against their checksums, its thumbnails, and what points where."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from diptych.errors import IndexFileError
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.vectors import checksum, decode, decode_set

_AT_ONCE = 500
_SHOWN = 10  # of what SQLite itself has to say

_DANGLING = {
    "an entry without a content": "SELECT key FROM entries WHERE content NOT IN (SELECT id FROM contents)",
    "an entry with the content of another kind": (
        "SELECT e.key FROM entries AS e JOIN contents AS c ON c.id = e.content WHERE c.kind != e.kind"
    ),
    "a text without its image": (
        "SELECT key FROM entries WHERE kind = 'text' "
        "AND (image IS NULL OR image NOT IN (SELECT id FROM entries WHERE kind = 'image'))"
    ),
    "an image without a thumbnail": (
        "SELECT key FROM entries WHERE kind = 'image' AND content NOT IN (SELECT content FROM thumbnails)"
    ),
}


def examine(path: str | Path, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """A line for every fault of an index; none for a sound one."""
    try:
        store = Store.open(path)
    except IndexFileError as reason:
        if not Path(path).exists():
            raise
        yield str(reason)
        return
    try:
        yield from _examine(store, progress)
    except IndexFileError as reason:  # SQLite cannot go on
        yield str(reason)
    finally:
        store.close()


def _examine(store: Store, progress: Callable[[int, int], None] | None) -> Iterator[str]:
    said = [row[0] for row in store.database.rows(f"PRAGMA quick_check({_SHOWN})")]
    if said != ["ok"]:
        yield from (f"{store.path}: {' '.join(str(line).split())}" for line in said)
    for what, statement in _DANGLING.items():
        yield from (f"{key}: {what}" for (key,) in store.database.rows(statement))
    ((total,),) = store.database.rows("SELECT count(*) FROM contents")
    last, done = 0, 0
    while rows := _contents_after(store, last):
        for number, saved, vector, own_set, jpeg in rows:
            if fault := _fault_of_vector(store, saved, vector, own_set) or _fault_of_thumbnail(jpeg):
                yield f"{_name(store, number)}: {fault}"
            last = number
            done += 1
            if progress:
                progress(done, total)


def _contents_after(store: Store, last: int) -> list[tuple[Any, ...]]:
    return store.database.rows(
        "SELECT c.id, c.checksum, c.vector, c.sets, t.jpeg FROM contents AS c "
        "LEFT JOIN thumbnails AS t ON t.content = c.id WHERE c.id > ? ORDER BY c.id LIMIT ?",
        (last, _AT_ONCE),
    )


def _fault_of_vector(store: Store, saved: int, vector: bytes, own_set: bytes | None) -> str | None:
    if checksum(vector, own_set) != saved:
        return "its vector does not have the checksum that it was written with"
    spec = store.spec
    try:
        values = decode([vector], spec.storage, spec.size)
        places = decode_set(own_set) if own_set is not None else values
    except IndexFileError as reason:
        return str(reason)
    return None if np.isfinite(values).all() and np.isfinite(places).all() else "its vector is not finite"


def _fault_of_thumbnail(jpeg: bytes | None) -> str | None:
    if jpeg is None:
        return None
    try:
        with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
            image.load()
    except Exception as reason:  # as with any image, a damaged one makes decoders raise anything
        return f"its thumbnail cannot be decoded ({' '.join(str(reason).split())})"
    return None


def _name(store: Store, content: int) -> str:
    """What people know a content by: the first entry that has it."""
    rows = store.database.rows("SELECT key FROM entries WHERE content = ? ORDER BY id LIMIT 1", (content,))
    return rows[0][0] if rows else f"content {content}"
