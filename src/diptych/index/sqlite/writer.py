"""Writes an index: contents, entries that point to them, and what was skipped."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from diptych.index.backend import Content, text_hash
from diptych.index.entries import Kind
from diptych.index.frames import file_key
from diptych.index.sources.listing import ImageInfo, Stamp
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.albums import keep_edited_images
from diptych.index.sqlite.migrations import ADD_IMAGE_WORDS
from diptych.index.sqlite.store import Store
from diptych.index.vectors import checksum

_IN_LIST = "(SELECT value FROM json_each(?))"

# Keys are unique, also while they are changed one by one: no key begins with a slash.
_MOVE = (
    "UPDATE entries SET key = '/' || :start || key",
    "UPDATE entries SET key = substr(key, 2)",
    "UPDATE entries SET path = :start || path, folder = rtrim(:start || folder, '/') WHERE kind = 'image'",
    "UPDATE image_words SET folder = (SELECT folder FROM entries WHERE id = image_words.rowid)",
    "UPDATE problems SET key = '/' || :start || key",
    "UPDATE problems SET key = substr(key, 2)",
)


class Writer:
    """Changes an index, within `transaction`; `gone` are the keys of files that no longer exist in the source.

    The entry of such an image is reused for an image with the same content under a new key; otherwise `finish` removes
    it.
    """

    def __init__(self, store: Store, gone: Iterable[str]) -> None:
        self._database = store.database
        self.gone = set(gone)
        if self.gone:
            frames = self._database.rows("SELECT key, moment FROM entries WHERE moment IS NOT NULL")
            self.gone |= {key for key, moment in frames if file_key(key, moment) in self.gone}
        self.renamed = 0
        self._gone_by_content: dict[int, list[tuple[int, str]]] = {}  # ids and keys of the entries that are gone
        for entry, key, content in self._images(self.gone):
            self._gone_by_content.setdefault(content, []).append((entry, key))

    def transaction(self) -> AbstractContextManager[None]:
        """A block whose changes are all made, or none of them."""
        return self._database.transaction()

    def begin(self, spec: IndexSpec) -> None:
        """Note that changes have begun, and where model and source are now."""
        with self.transaction():
            self._database.set_meta("making", spec.to_json())
            self._database.set_meta("unfinished", True)

    def move_into(self, name: str) -> None:
        """Put the name of a folder before all keys, paths and problems."""
        for statement in _MOVE:
            self._database.rows(statement, {"start": f"{name}/"})

    def set_synced(self, moment: str, files: Mapping[str, Any]) -> None:
        """Note when the index was last compared with its source, and how many files there were."""
        self._database.set_meta("synced", moment)
        self._database.set_meta("files", dict(files))

    def content(self, kind: Kind, digest: bytes) -> int | None:
        """The id of a content by its hash, if the index has it; may be called from several threads."""
        rows = self._database.rows("SELECT id FROM contents WHERE kind = ? AND hash = ?", (kind, digest))
        return rows[0][0] if rows else None

    def content_of(self, key: str) -> int | None:
        """The id of the content of an image by its key."""
        rows = self._images([key])
        return rows[0][2] if rows else None

    def frames(self, video: bytes) -> list[bytes]:
        """The hashes of the contents that are frames of the video with this hash, in their order."""
        statement = "SELECT hash FROM contents WHERE kind = 'image' AND hash > ? AND hash < ? ORDER BY hash"
        return [row[0] for row in self._database.rows(statement, (video, video + b"\xff" * 8))]

    def add(self, content: Content) -> int:
        """Add a content that the index does not have, and return its id."""
        look = None if content.look is None else int(np.uint64(content.look).astype(np.int64))  # SQLite is signed
        header = content.header
        size_and_day = (None, None, None) if header is None else (header.width, header.height, header.taken)
        number = self._database.insert(
            "INSERT INTO contents(kind, hash, checksum, look, width, height, taken, vector, sets) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(content.kind, content.hash, checksum(content.vector, content.vector_set), look),
                *(*size_and_day, content.vector, content.vector_set),
            ),
        )
        if header is not None and (header.camera is not None or header.latitude is not None):
            values = (number, header.camera, header.latitude, header.longitude)
            self._database.insert("INSERT INTO details VALUES(?, ?, ?, ?)", values)
        if content.thumbnail is not None:
            self._database.insert("INSERT INTO thumbnails VALUES(?, ?)", (number, content.thumbnail))
        return number

    def put_image(self, key: str, content: int, stamp: Stamp, about: ImageInfo) -> None:
        """Add or change the image with this key, and its texts, whose contents must have been added."""
        values = (
            *(key, content, about.path, key.rpartition("/")[0], *stamp[:2], about.split),
            *(json.dumps(dict(about.columns)) if about.columns else None, stamp[2], about.moment),
        )
        entry = self._entry_to_reuse(key, content)
        if entry is None:
            entry = self._database.insert(
                "INSERT INTO entries"
                "(kind, key, content, path, folder, size, modified, split, columns, details, moment) "
                "VALUES('image', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        else:
            self._database.rows(
                "UPDATE entries SET key = ?, content = ?, path = ?, folder = ?, size = ?, modified = ?, split = ?, "
                "columns = ?, details = ?, moment = ? WHERE id = ?",
                (*values, entry),
            )
        solved = (key, file_key(key, about.moment), about.text_file)
        self._database.rows("DELETE FROM problems WHERE key IN (?, ?, ?)", solved)
        self._put_texts(entry, key, about.texts)
        self._database.rows("DELETE FROM image_words WHERE rowid = ?", (entry,))
        self._database.rows(ADD_IMAGE_WORDS + " AND image.id = ?", (entry,))
        self._database.each("INSERT OR REPLACE INTO problems VALUES(?, 0, 0, ?)", sorted(about.problems.items()))

    def keep_frames(self, video: str, keys: Collection[str]) -> None:
        """Note that the video with this key has only these frames; others are gone."""
        self.gone |= self._frames_of(video) - set(keys)

    def put_problem(self, key: str, stamp: Stamp, reason: str, *, permanent: bool) -> None:
        """Note an image that cannot be read; unless the reason is permanent, the next sync tries again."""
        values = (key, stamp[0], stamp[1] if permanent else -1, reason)
        self._database.rows("INSERT OR REPLACE INTO problems VALUES(?, ?, ?, ?)", values)
        if permanent:
            self.gone |= {key, *self._frames_of(key)}  # these entries no longer are what is in the file

    def finish(
        self, source_problems: Mapping[str, str], solved: Iterable[str], storage_cost: Mapping[str, Any] | None = None
    ) -> int:
        """Remove what is gone and contents without an entry; returns the number of images that were removed.

        `source_problems` are those found without reading an image, and `solved` the keys of earlier problems that no
        longer exist.
        """
        removed = len(self._images(self.gone))
        self._database.rows("DELETE FROM entries WHERE kind = 'image' AND key IN " + _IN_LIST, _json(self.gone))
        keep_edited_images(self._database)
        self._database.rows("DELETE FROM contents WHERE id NOT IN (SELECT content FROM entries)")
        self._database.rows("DELETE FROM problems WHERE size IS NULL OR key IN " + _IN_LIST, _json(solved))
        self._database.each("INSERT OR REPLACE INTO problems VALUES(?, NULL, NULL, ?)", sorted(source_problems.items()))
        if storage_cost is not None:
            self._database.set_meta("storage_cost", storage_cost)
        self._database.set_meta("unfinished", False)
        return removed

    def _frames_of(self, video: str) -> set[str]:
        """The keys of the frames of the video with this key."""
        statement = "SELECT key FROM entries WHERE moment IS NOT NULL AND key > ? AND key < ?"
        return {row[0] for row in self._database.rows(statement, (f"{video}#", f"{video}$"))}  # $ follows #

    def _images(self, keys: Collection[str]) -> list[tuple[int, str, int]]:
        """Id, key and content of the images with these keys."""
        if not keys:
            return []
        statement = "SELECT id, key, content FROM entries WHERE kind = 'image' AND key IN "
        return [(row[0], row[1], row[2]) for row in self._database.rows(statement + _IN_LIST, _json(keys))]

    def _entry_to_reuse(self, key: str, content: int) -> int | None:
        """The entry that becomes this image: the one with its key, or one with its content whose key is gone."""
        if rows := self._images([key]):
            return rows[0][0]
        for entry, old_key in self._gone_by_content.get(content, ()):
            if old_key in self.gone:
                self.gone.remove(old_key)
                self.renamed += 1
                return entry
        return None

    def _put_texts(self, image: int, key: str, texts: Sequence[str]) -> None:
        rows = self._database.rows("SELECT text, id FROM entries WHERE image = ?", (image,))
        known = dict(rows)
        removed = [(known[text],) for text in known.keys() - set(texts)]
        self._database.each("DELETE FROM entries WHERE id = ?", removed)
        for number, text in enumerate(texts):
            text_key = f"{key}#{number}"
            if text in known:
                values = (text_key, number, known[text])
                self._database.rows("UPDATE entries SET key = ?, place = ? WHERE id = ?", values)
            else:
                content = self.content("text", text_hash(text))
                self._database.insert(
                    "INSERT INTO entries(kind, key, content, image, text, place) VALUES('text', ?, ?, ?, ?, ?)",
                    (text_key, content, image, text, number),
                )


def _json(keys: Iterable[str]) -> tuple[str]:
    return (json.dumps(sorted(keys)),)
