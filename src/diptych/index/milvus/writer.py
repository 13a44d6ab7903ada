"""Writes an index to Milvus, which has no transactions: changes are collected, and written in an order that is safe.

Every row is complete, and its id follows from what it is. Texts are written before their image, whose stamp says that
it is done. If Milvus or the sync dies in between, the next sync finds the image undone, and writes the same rows again.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diptych.errors import DataError, IndexFileError
from diptych.index.backend import Content, Problem, text_hash
from diptych.index.entries import Kind
from diptych.index.frames import file_key
from diptych.index.milvus.about import problem_ids, problem_row, value_rows
from diptych.index.milvus.client import Row
from diptych.index.milvus.rows import StoredContent, checked, image_row, moment_of, moved, text_row
from diptych.index.milvus.schema import ABOUT, IMAGE, TEXT, WITH_VECTOR, any_of, content_id, literal, row_id
from diptych.index.milvus.store import MilvusStore
from diptych.index.sources.listing import ImageInfo, Stamp
from diptych.index.spec import IndexSpec

_AT_ONCE = 500  # values in a condition, and rows in a request
_BYTES_AT_ONCE = 16 * 2**20
_NEARLY_UNIT = 1e-2


@dataclass(frozen=True)
class _Image:
    """An image to put."""

    key: str
    content: str
    stamp: Stamp
    about: ImageInfo


@dataclass
class _Changes:
    """What a transaction will write."""

    contents: dict[tuple[Kind, str], StoredContent] = field(default_factory=dict)
    thumbnails: dict[str, bytes] = field(default_factory=dict)
    images: dict[str, _Image] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    solved: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)
    later: list[Callable[[], None]] = field(default_factory=list)


class MilvusWriter:
    """Changes an index, within `transaction`; `gone` are the keys of files that no longer exist in the source."""

    def __init__(self, store: MilvusStore, gone: Iterable[str]) -> None:
        self._store, self._client = store, store.client
        self.renamed = 0
        self._changes: _Changes | None = None
        self._lock = threading.Lock()
        self._known: dict[Kind, set[bytes]] = {}
        self._replaced: dict[tuple[Kind, str], StoredContent] = {}
        self._hashes: dict[int, str] = {}  # of contents that were asked for
        self._wrote = False
        self._continues = False  # whether the last sync was stopped
        self.gone = set(gone)
        if self.gone:
            frames = store.scan(IMAGE, ("key", "moment"), "moment >= 0")
            self.gone |= {row["key"] for row in frames if file_key(row["key"], row["moment"]) in self.gone}
        self._gone_by_content: dict[str, list[str]] = {}
        for row in self._images(self.gone, ("id", "key", "hash")):
            self._gone_by_content.setdefault(row["hash"], []).append(row["key"])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes are written at its end; after an error in it, nothing is."""
        if self._changes is not None:  # a nested block is part of the outer one
            yield
            return
        self._changes = _Changes()
        try:
            yield
            self._commit(self._changes)
        finally:
            self._changes = None

    def begin(self, spec: IndexSpec) -> None:
        """Note that changes have begun, and where model and source are now."""
        self._continues = bool(self._store.meta("unfinished"))
        self._set({"making": spec.to_json(), "unfinished": True})

    def move_into(self, name: str) -> None:
        """Put the name of a folder before all keys, paths and problems."""
        start, store = f"{name}/", self._store
        images = {row["id"]: row for row in store.scan(IMAGE, WITH_VECTOR)}
        texts, problems = store.scan(TEXT, WITH_VECTOR), store.problem_records()
        changes = self._open
        changes.later += [
            lambda: self._move(images, texts, start),
            lambda: self._delete(ABOUT, problem_ids(problem.key for problem in problems)),
        ]
        changes.problems |= {problem.key: problem._replace(key=start + problem.key) for problem in problems}

    def set_synced(self, moment: str, files: Mapping[str, Any]) -> None:
        """Note when the index was last compared with its source; everything that was written is visible then."""
        if self._wrote:  # before the new generation is seen
            self._settle()
        self._set({"synced": moment, "files": dict(files)})
        self._settle()

    def content(self, kind: Kind, digest: bytes) -> int | None:
        """A number for a content by its hash, if the index has it."""
        name, changes = digest.hex(), self._changes
        is_new = changes is not None and (kind, name) in changes.contents
        return self._number(name) if is_new or digest in self._known_contents(kind) else None

    def content_of(self, key: str) -> int | None:
        """The number of the content of an image by its key."""
        for row in self._images([key], ("id", "key", "hash")):
            return self._number(row["hash"])
        return None

    def frames(self, video: bytes) -> list[bytes]:
        """The hashes of the contents that are frames of the video with this hash, in their order."""
        name = video.hex()
        where = f"moment >= 0 and hash > {literal(name)} and hash < {literal(f'{name}g')}"  # g follows f
        return sorted({bytes.fromhex(row["hash"]) for row in self._store.scan(IMAGE, ("hash",), where)})

    def add(self, content: Content) -> int:
        """Add a content that the index does not have; it is written with the entries that have it."""
        if content.vector_set is not None:
            raise IndexFileError(
                f"{self._store.address}: this model compares sets of vectors, and an index in Milvus holds one vector "
                "per entry; use an index in an SQLite file"
            )
        stored, changes = StoredContent.of(content, self._store.spec), self._open
        changes.contents[content.kind, stored.hash] = stored
        if content.thumbnail is not None:
            changes.thumbnails[stored.hash] = content.thumbnail
        if abs(float(np.linalg.norm(stored.vector)) - 1) > _NEARLY_UNIT:
            changes.values["unit"] = False
        return self._number(stored.hash)

    def put_image(self, key: str, content: int, stamp: Stamp, about: ImageInfo) -> None:
        """Add or change the image with this key, and its texts."""
        if about.path is None and self._store.thumbnails is None:
            raise DataError(
                f"{self._store.address}: {key} is not a file of its own, and Milvus keeps no thumbnails; name a "
                "place for them: add ?thumbnails=FOLDER to the address of a new index"
            )
        changes = self._open
        changes.images[key] = _Image(key, self._hashes[content], stamp, about)
        self._find_renamed(key, self._hashes[content])
        solved = {key, file_key(key, about.moment), *([] if about.text_file is None else [about.text_file])}
        changes.solved |= solved
        for name in solved:
            changes.problems.pop(name, None)
        changes.problems |= {name: Problem(name, 0, 0, reason) for name, reason in about.problems.items()}

    def keep_frames(self, video: str, keys: Collection[str]) -> None:
        """Note that the video with this key has only these frames; others are gone."""
        self.gone |= self._frames_of(video) - set(keys)

    def put_problem(self, key: str, stamp: Stamp, reason: str, *, permanent: bool) -> None:
        """Note an image that cannot be read; unless the reason is permanent, the next sync tries again."""
        self._open.problems[key] = Problem(key, stamp[0], stamp[1] if permanent else -1, reason)
        if permanent:
            self.gone |= {key, *self._frames_of(key)}

    def finish(
        self, source_problems: Mapping[str, str], solved: Iterable[str], storage_cost: Mapping[str, Any] | None = None
    ) -> int:
        """Remove what is gone; returns the number of images that were removed."""
        changes = self._open
        removed = self._images(self.gone, ("id", "key", "hash"))
        of_source = {problem.key for problem in self._store.problem_records() if problem.size is None}
        changes.solved |= of_source | set(solved)
        changes.problems |= {key: Problem(key, None, None, reason) for key, reason in source_problems.items()}
        changes.values["unfinished"] = False
        if storage_cost is not None:
            changes.values["storage_cost"] = dict(storage_cost)
        changes.later.append(lambda: self._clean(removed, changes))
        return len(removed)

    @property
    def _open(self) -> _Changes:
        assert self._changes is not None, "changes are made within a transaction"
        return self._changes

    def _number(self, digest: str) -> int:
        number = content_id(digest)
        self._hashes[number] = digest
        return number

    def _known_contents(self, kind: Kind) -> set[bytes]:
        """The hashes of all contents of the index, read once: a request per photo would take longer."""
        with self._lock:
            if kind not in self._known:
                rows = self._store.scan(kind, ("hash",))
                self._known[kind] = {bytes.fromhex(row["hash"]) for row in rows}
            return self._known[kind]

    def _set(self, values: Mapping[str, Any]) -> None:
        with self.transaction():
            self._open.values.update(values)

    def _find_renamed(self, key: str, digest: str) -> None:
        """Reuse what is gone: an image with the same content under another key was renamed, unless it is there too."""
        waiting = [old for old in self._gone_by_content.get(digest, ()) if old in self.gone and old != key]
        if key in self.gone or not waiting or self._images([key], ("id",)):
            return
        old = waiting[0]
        self.gone.discard(old)
        self.renamed += 1
        self._open.later.append(lambda: self._remove_images([row_id("image", old)]))

    def _commit(self, changes: _Changes) -> None:
        stored = self._store.thumbnails
        if stored is not None:
            for digest, jpeg in changes.thumbnails.items():
                stored.put(digest, jpeg)
        self._wrote = True
        if changes.images:
            self._write_images(changes)
        for act in changes.later:
            act()
        size = (
            self._store.spec.size
            if not isinstance(changes.values.get("making"), dict)
            else int(changes.values["making"]["size"])
        )
        self._delete(ABOUT, problem_ids(changes.solved - changes.problems.keys()))
        self._upsert(ABOUT, [problem_row(problem, size) for problem in changes.problems.values()])
        changes.values["generation"] = self._store.generation + 1
        self._upsert(ABOUT, [row for name, value in changes.values.items() for row in value_rows(name, value, size)])
        self._store.forget()

    def _write_images(self, changes: _Changes) -> None:
        """Texts first: the stamp in the row of an image says that it is complete."""
        contents = self._contents_of("image", {image.content for image in changes.images.values()}, changes)
        texts = {text for image in changes.images.values() for text in image.about.texts}
        hashes = {text: text_hash(text).hex() for text in texts}
        of_texts = self._contents_of("text", set(hashes.values()), changes)
        images, text_rows = [], []
        for image in changes.images.values():
            row = image_row(image.key, contents[image.content], image.stamp, image.about)
            images.append(checked(row))
            new = dict.fromkeys(image.about.texts)
            text_rows += [checked(text_row(row, text, place, of_texts[hashes[text]])) for place, text in enumerate(new)]
        kept = {row["id"] for row in text_rows}
        before = self._where_any(TEXT, "image", [row["id"] for row in images], ("id",))
        outdated = [row["id"] for row in before if row["id"] not in kept]
        self._keep_contents("text", self._where_any(TEXT, "id", outdated, WITH_VECTOR))
        self._keep_contents("image", self._changing(images))
        self._upsert(TEXT, text_rows)
        self._delete(TEXT, outdated)
        self._upsert(IMAGE, images)
        for kind, digest in changes.contents:
            if kind in self._known:
                self._known[kind].add(bytes.fromhex(digest))

    def _changing(self, images: Sequence[Row]) -> list[Row]:
        """The present rows of images whose content will be another."""
        new = {row["id"]: row["hash"] for row in images}
        rows = self._where_any(IMAGE, "id", list(new), ("id", "hash"))
        return self._where_any(IMAGE, "id", [row["id"] for row in rows if row["hash"] != new[row["id"]]], WITH_VECTOR)

    def _keep_contents(self, kind: Kind, rows: Sequence[Row]) -> None:
        """Keep contents that lose their row: an image that comes later may have them, as when two files are swapped."""
        for row in rows:
            self._replaced[kind, row["hash"]] = StoredContent.of_row(row)

    def _contents_of(self, kind: Kind, digests: Collection[str], changes: _Changes) -> dict[str, StoredContent]:
        """These contents: added in this transaction, or those of entries that the index has or had."""
        known = ChainMap(changes.contents, self._replaced)
        found = {digest: known[kind, digest] for digest in digests if (kind, digest) in known}
        for level in (self._store.level, "Strong"):  # a connection that was opened again knows nothing of its session
            missing = sorted(set(digests) - found.keys())
            for begin in range(0, len(missing), _AT_ONCE):
                where = any_of("hash", missing[begin : begin + _AT_ONCE])
                rows = self._client.query(self._store.collection, where, WITH_VECTOR, kind, level=level)
                found |= {row["hash"]: StoredContent.of_row(row) for row in rows}
        if lost := set(digests) - found.keys():
            raise IndexFileError(
                f"{self._store.address}: {len(lost)} contents were removed meanwhile; is another sync running? "
                "Run the command again"
            )
        return found

    def _clean(self, removed: Sequence[Row], changes: _Changes) -> None:
        """Remove images with their texts and thumbnails, and texts without an image that an interruption has left."""
        self._remove_images([row["id"] for row in removed])
        if self._continues:
            images = {row["id"] for row in self._store.scan(IMAGE, ("id",))}
            texts = self._store.scan(TEXT, ("id", "image"))
            self._delete(TEXT, [row["id"] for row in texts if row["image"] not in images])
        if (stored := self._store.thumbnails) is not None:
            digests = {row["hash"] for row in removed}
            used = {row["hash"] for row in self._where_any(IMAGE, "hash", sorted(digests), ("hash",))}
            for digest in digests - used:
                stored.remove(digest)
        changes.values["facets"] = self._store.count_facets()

    def _remove_images(self, ids: Sequence[int]) -> None:
        texts = self._where_any(TEXT, "image", ids, ("id",))
        self._delete(TEXT, [row["id"] for row in texts])
        self._delete(IMAGE, ids)

    def _move(self, images: Mapping[int, Row], texts: Sequence[Row], start: str) -> None:
        new = {id: moved(row, start) for id, row in images.items()}
        new_texts = []
        for row in texts:
            image = new.get(row["image"])
            if image is not None:
                content = StoredContent.of_row(row)
                new_texts.append(text_row(image, row["text"], row["place"], content))
        self._upsert(TEXT, new_texts)
        self._upsert(IMAGE, list(new.values()))
        self._delete(TEXT, [row["id"] for row in texts])
        self._delete(IMAGE, list(images))

    def _images(self, keys: Iterable[str], fields: Sequence[str]) -> list[Row]:
        """The images with these keys."""
        return self._where_any(IMAGE, "id", [row_id("image", key) for key in keys], fields)

    def _where_any(self, partition: str, name: str, values: Sequence[Any], fields: Sequence[str]) -> list[Row]:
        found: list[Row] = []
        for begin in range(0, len(values), _AT_ONCE // 5):
            found += self._store.scan(partition, fields, any_of(name, values[begin : begin + _AT_ONCE // 5]))
        return found

    def _frames_of(self, video: str) -> set[str]:
        """The keys of the frames of the video with this key."""
        where = f"moment >= 0 and key > {literal(f'{video}#')} and key < {literal(f'{video}$')}"  # $ follows #
        return {row["key"] for row in self._store.scan(IMAGE, ("key", "moment"), where) if moment_of(row) is not None}

    def _upsert(self, partition: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows, replacing those with the same ids; each row once, because Milvus would keep both."""
        unique = list({row["id"]: dict(row) for row in rows}.values())
        size = 4 * len(unique[0]["vector"]) + 4096 if unique else 1
        at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // size))
        for begin in range(0, len(unique), at_once):
            part = [{**row, "vector": np.asarray(row["vector"], np.float32)} for row in unique[begin : begin + at_once]]
            self._client.slowly("upsert", self._store.collection, part, partition_name=partition)
            self._store.changed()

    def _delete(self, partition: str, ids: Iterable[int]) -> None:
        numbers = [int(id) for id in ids]
        for begin in range(0, len(numbers), _AT_ONCE):
            where = any_of("id", numbers[begin : begin + _AT_ONCE])
            self._client.slowly("delete", self._store.collection, filter=where, partition_name=partition)
            self._store.changed()

    def _settle(self) -> None:
        """Wait until everything that was written is visible to those who read with a lower consistency."""
        self._client.count(self._store.collection, "", ABOUT, level="Strong")
