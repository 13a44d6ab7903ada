"""Writing to an index: contents, entries that point to them, and what was left out; all within a transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diptych.index.entries import Kind
from diptych.index.source import About, Stamp
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.vectors import checksum

_AMONG = "(SELECT value FROM json_each(?))"


@dataclass(frozen=True)
class Content:
    """A content to add: its hash, its vector and set as they are kept, and, of an image, what it looks like."""

    kind: Kind
    hash: bytes
    vector: bytes
    own_set: bytes | None = None
    look: int | None = None
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    thumbnail: bytes | None = None


def text_hash(text: str) -> bytes:
    """What identifies the content of a text."""
    return hashlib.sha256(text.encode()).digest()


class Writer:
    """Changes an index; `gone` are the keys of entries whose images are not there any more.

    Such an entry is taken over by an image with the same content under a new name, and else removed by `finish`.
    """

    def __init__(self, store: Store, gone: Iterable[str]) -> None:
        self._database = store.database
        self.gone = set(gone)
        self.renamed = 0
        self._left: dict[int, list[tuple[int, str]]] = {}  # entries whose keys are gone, and these, by content
        for entry, key, content in self._images(self.gone):
            self._left.setdefault(content, []).append((entry, key))

    def _images(self, keys: Iterable[str]) -> list[tuple[int, str, int]]:
        """Id, key and content of the images of some keys."""
        statement = "SELECT id, key, content FROM entries WHERE kind = 'image' AND key IN "
        return [(row[0], row[1], row[2]) for row in self._database.rows(statement + _AMONG, _json(keys))]

    def content(self, kind: Kind, digest: bytes) -> int | None:
        """The number of a content that the index has; safe to ask from several threads."""
        rows = self._database.rows("SELECT id FROM contents WHERE kind = ? AND hash = ?", (kind, digest))
        return rows[0][0] if rows else None

    def content_of(self, key: str) -> int | None:
        """The number of the content of an image by its key."""
        rows = self._images([key])
        return rows[0][2] if rows else None

    def add(self, content: Content) -> int:
        """Add a content that the index does not have."""
        look = None if content.look is None else int(np.uint64(content.look).astype(np.int64))  # SQLite has a sign
        number = self._database.insert(
            "INSERT INTO contents(kind, hash, checksum, look, width, height, taken, vector, sets) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(content.kind, content.hash, checksum(content.vector, content.own_set), look),
                *(content.width, content.height, content.taken, content.vector, content.own_set),
            ),
        )
        if content.thumbnail is not None:
            self._database.insert("INSERT INTO thumbnails VALUES(?, ?)", (number, content.thumbnail))
        return number

    def put_image(self, key: str, content: int, stamp: Stamp, about: About) -> None:
        """An image under its key, with its texts, whose contents are there already."""
        values = (
            *(key, content, about.path, key.rpartition("/")[0], *stamp[:2], about.split),
            *(json.dumps(dict(about.columns)) if about.columns else None, stamp[2]),
        )
        entry = self._entry_for(key, content)
        if entry is None:
            entry = self._database.insert(
                "INSERT INTO entries(kind, key, content, path, folder, size, modified, split, columns, details) "
                "VALUES('image', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        else:
            self._database.rows(
                "UPDATE entries SET key = ?, content = ?, path = ?, folder = ?, size = ?, modified = ?, split = ?, "
                "columns = ?, details = ? WHERE id = ?",
                (*values, entry),
            )
        self._database.rows("DELETE FROM problems WHERE key IN (?, ?)", (key, about.beside))
        self._put_texts(entry, key, about.texts)
        self._database.each("INSERT OR REPLACE INTO problems VALUES(?, 0, 0, ?)", sorted(about.problems.items()))

    def put_problem(self, key: str, stamp: Stamp, reason: str, *, lasting: bool) -> None:
        """An image that cannot be read; where the reason does not lie in its bytes it is tried again the next time."""
        values = (key, stamp[0], stamp[1] if lasting else -1, reason)
        self._database.rows("INSERT OR REPLACE INTO problems VALUES(?, ?, ?, ?)", values)
        if lasting:
            self.gone.add(key)  # what is in the index under this key is not what is in the file any more

    def finish(self, noted: Mapping[str, str], problem_keys: Iterable[str]) -> int:
        """Remove what is gone, and contents that nobody points to; says how many images went.

        `noted` are the problems that were seen without reading an image, and `problem_keys` the keys of those that are
        problems no more.
        """
        removed = len(self._images(self.gone))
        self._database.rows("DELETE FROM entries WHERE kind = 'image' AND key IN " + _AMONG, _json(self.gone))
        self._database.rows("DELETE FROM contents WHERE id NOT IN (SELECT content FROM entries)")
        self._database.rows("DELETE FROM problems WHERE size IS NULL OR key IN " + _AMONG, _json(problem_keys))
        self._database.each("INSERT OR REPLACE INTO problems VALUES(?, NULL, NULL, ?)", sorted(noted.items()))
        return removed

    def _entry_for(self, key: str, content: int) -> int | None:
        """The entry that becomes this image: the one of its key, or one of its content whose own key is gone."""
        if rows := self._images([key]):
            return rows[0][0]
        for entry, old in self._left.get(content, ()):
            if old in self.gone:
                self.gone.remove(old)
                self.renamed += 1
                return entry
        return None

    def _put_texts(self, image: int, key: str, texts: Sequence[str]) -> None:
        rows = self._database.rows("SELECT text, id FROM entries WHERE image = ?", (image,))
        known = dict(rows)
        left = [(known[text],) for text in known.keys() - set(texts)]
        self._database.each("DELETE FROM entries WHERE id = ?", left)
        for place, text in enumerate(texts):
            own = f"{key}#{place}"
            if text in known:
                values = (own, place, known[text])
                self._database.rows("UPDATE entries SET key = ?, place = ? WHERE id = ?", values)
            else:
                content = self.content("text", text_hash(text))
                self._database.insert(
                    "INSERT INTO entries(kind, key, content, image, text, place) VALUES('text', ?, ?, ?, ?, ?)",
                    (own, content, image, text, place),
                )


def _json(keys: Iterable[str]) -> tuple[str]:
    return (json.dumps(sorted(keys)),)
