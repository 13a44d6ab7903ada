"""Reads an index in Milvus: entries are fetched when they are shown, and vectors are searched where they are."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError, IndexFileError
from diptych.index.backend import Ids, Problem
from diptych.index.entries import Entry, Filters, Kind
from diptych.index.frames import file_key, number_names
from diptych.index.milvus import about, filtering
from diptych.index.milvus.address import IndexType
from diptych.index.milvus.client import Client, CollectionGoneError, Row
from diptych.index.milvus.pool import MilvusPool
from diptych.index.milvus.rows import entry_of, moment_of, stamp_of, vectors_of
from diptych.index.milvus.schema import FIELDS, IMAGE, TEXT, WITH_VECTOR, any_of, content_id, scan
from diptych.index.milvus.thumbnails import ThumbnailStore, from_original, thumbnail_store
from diptych.index.sources.listing import Stamp
from diptych.index.spec import IndexSpec
from diptych.models.engines.engine import Encodings

if TYPE_CHECKING:
    from diptych.index.milvus.writer import MilvusWriter

_AT_ONCE = 1000  # rows of one request
_IMAGES_AT_ONCE = 100  # whose captions are read with one request
_CACHED_ROWS = 20_000
_CACHED_THUMBNAILS = 500
_FRESH = 1.0  # seconds; a search checks the generation itself
_BYTES_PER_NUMBER = 4

Answer = TypeVar("Answer")


class MilvusStore:
    """An open index; threads may share it.

    A reader sees changes by others at most as late as the consistency of its address allows; a writer sees its own.
    """

    cache_path: Path | None = None

    def __init__(self, client: Client, name: str, *, write: bool = False) -> None:
        self.client, self._name, self._write = client, name, write
        self._lock = threading.RLock()
        self._is_settled = True
        self._rows: OrderedDict[int, Row] = OrderedDict()  # of `_rows_of`, with vectors
        self._small: OrderedDict[int, bytes] = OrderedDict()
        self._known: dict[str, Any] = {}  # values and facets of `_seen`
        self._seen, self._checked = -1, -np.inf  # the generation of what was read, and when that was checked
        self.collection = self._find()
        _ = self.spec  # which refuses a collection without one

    @property
    def level(self) -> str:
        """The consistency of what is read next; after a change, a writer waits until it sees it."""
        if not self._write:
            return self.client.address.consistency
        if self._is_settled and self.client.address.replicas == 1:
            return "Session"
        self._is_settled = True  # once what is read with this level has been answered
        return "Strong"

    @property
    def address(self) -> str:
        """The address as it was written."""
        return self.client.address.text

    @property
    def spec(self) -> IndexSpec:
        """The model and the source of the index."""
        try:
            return IndexSpec.from_json(self._cached("making", lambda: self.meta("making")))
        except (TypeError, ValueError, AttributeError):
            raise IndexFileError(
                f"{self.address}: a collection that Diptych has not made, or not completely; name another collection"
            ) from None

    @property
    def generation(self) -> int:
        """A number that grows with every change by any process."""
        found = int(self.meta("generation") or 0)
        with self._lock:
            self._checked = time.monotonic()
            if found != self._seen:
                self.forget()
                self._seen = found
        return found

    @property
    def instance(self) -> str:
        """The collection behind the name; another one if the index was replaced."""
        return self.collection

    @property
    def index_type(self) -> IndexType:
        """The type of the index over the vectors."""
        kind: IndexType = self._cached("index", lambda: self._options()["index"])
        return kind

    @property
    def thumbnails(self) -> ThumbnailStore | None:
        """Where the thumbnails are, if they are stored."""
        at = self.client.address.thumbnails or self._cached("thumbnails", lambda: self._options().get("thumbnails"))
        return thumbnail_store(at)

    def exists(self) -> bool:
        """Whether the collection has not been dropped."""
        return self.client.real_name(self._name) is not None

    def bytes_used(self) -> int:
        """The size of the vectors in the memory of Milvus, before its index is added."""
        return sum(self.counts().values()) * self.spec.size * _BYTES_PER_NUMBER

    def writer(self, gone: Iterable[str]) -> MilvusWriter:
        """What changes the index."""
        from diptych.index.milvus.writer import MilvusWriter

        return MilvusWriter(self, gone)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block for one thread at a time; Milvus has no state that several calls could share."""
        with self._lock:
            yield

    def pool(self, kind: Kind, filters: Filters) -> MilvusPool:
        """The entries of a kind that pass the filters, searched by Milvus."""
        return MilvusPool(self, kind, self._expression(filters))

    def counts(self) -> dict[Kind, int]:
        """The number of entries of each kind."""
        return {"image": self.count("image"), "text": self.count("text")}

    def count(self, kind: Kind, where: str = "") -> int:
        """The number of entries of a kind that meet a condition."""
        return self.read(lambda: self.client.count(self.collection, where, kind, level=self.level))

    def vectors(self, kind: Kind) -> tuple[Integers, Floats]:
        """The ids of all entries of a kind, ascending, and their vectors; searching needs none of them here."""
        rows = sorted(self.scan(kind, ("id", "vector")), key=lambda row: int(row["id"]))
        return np.array([row["id"] for row in rows], np.int64), vectors_of(rows, self.spec.size)

    def sets(self, ids: Ids) -> tuple[Floats, ...] | None:
        """None: an index in Milvus holds one vector per entry."""
        return None

    def encoded(self, id: int) -> tuple[Kind, Encodings]:
        """The kind of an entry, and its encoding as it was indexed."""
        (row,) = self.rows([id])
        kind: Kind = "image" if row["image"] == row["id"] else "text"
        return kind, Encodings(vectors_of([row], self.spec.size))

    def looks(self, ids: Ids) -> NDArray[np.uint64]:
        """The difference hash of the image of each of these entries."""
        return np.array([row["look"] for row in self.rows(ids)], np.int64).view(np.uint64)

    def videos_of(self, ids: Ids) -> Integers:
        """A number for the video of which each of these images is a frame, 0 for a photo."""
        rows = self.rows(ids)
        return number_names([None if row["moment"] < 0 else file_key(row["key"], row["moment"]) for row in rows])

    def contents_of(self, ids: Ids) -> Integers:
        """A number for the content of each of these entries; equal files share one, and so do equal texts."""
        return np.array([content_id(row["hash"]) for row in self.rows(ids)], np.int64)

    def entries(self, ids: Ids) -> list[Entry]:
        """These entries, in the given order."""
        spec = self.spec
        return [entry_of(row, spec) for row in self.rows(ids)]

    def captions(self, image_ids: Ids) -> dict[int, list[str]]:
        """The texts of each of these images."""
        captions: dict[int, list[str]] = {int(image): [] for image in image_ids}
        images = list(captions)
        for begin in range(0, len(images), _IMAGES_AT_ONCE):
            where = any_of("image", images[begin : begin + _IMAGES_AT_ONCE])
            rows = self.query(TEXT, where, ("image", "place", "text"))
            for row in sorted(rows, key=lambda row: int(row["place"])):
                captions[row["image"]].append(row["text"])
        return captions

    def matching(self, kind: Kind, filters: Filters) -> Integers:
        """The ids of the entries of a kind that pass the filters, ascending."""
        where = self._expression(filters)
        return np.sort(np.array([row["id"] for row in self.scan(kind, ("id",), where)], np.int64))

    def image_stamps(self) -> dict[str, Stamp]:
        """The stamp of every file with an image, by its key; a video has one for all of its frames."""
        rows = self.scan(IMAGE, ("key", "moment", "facts"))
        return {file_key(row["key"], moment_of(row)): stamp_of(row) for row in rows}

    def columns(self) -> list[str]:
        """The columns of the source's table."""
        return self._facets()["columns"]

    def folders(self) -> list[str]:
        """All folders of the source that contain an image, directly or further below."""
        paths = (folder.split("/") for folder in self._facets()["folders"])
        return sorted({"/".join(parts[:depth]) for parts in paths for depth in range(1, 1 + len(parts))})

    def splits(self) -> list[str]:
        """The splits of the source."""
        return self._facets()["splits"]

    def thumbnail(self, id: int) -> bytes | None:
        """The thumbnail of an image, or of the image of a text, as stored or made from the original."""
        try:
            (row,) = self.rows([id])
            image = int(row["image"])
            if (known := self._small.get(image)) is not None:
                return known
            (row,) = self.rows([image])
        except DataError:
            return None
        stored, file = self.thumbnails, self.spec.file_of(row["facts"]["path"])
        jpeg = None if stored is None else stored.get(row["hash"])
        if jpeg is None and file is not None:
            jpeg = from_original(file, moment_of(row))
        if jpeg is not None:  # a folder that is away may come back
            with self._lock:
                self._small[image] = jpeg
                if len(self._small) > _CACHED_THUMBNAILS:
                    self._small.popitem(last=False)
        return jpeg

    def problems(self) -> list[tuple[str, str]]:
        """What was skipped, by its key in the source, and the reason."""
        return [(problem.key, problem.reason) for problem in self.problem_records()]

    def problem_records(self) -> list[Problem]:
        """What was skipped, with the state of the file at that time."""
        return self.read(lambda: about.problems(self.client, self.collection, self.level))

    def meta(self, name: str) -> Any:
        """A value that the index has about itself, or None."""
        return self.read(lambda: about.read_value(self.client, self.collection, name, self.level))

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def rows(self, ids: Ids) -> list[Row]:
        """These rows with their vectors, in the given order; raises DataError for one that is not there."""
        wanted = [int(id) for id in ids]
        with self._lock:
            self._refresh()
            missing = [id for id in dict.fromkeys(wanted) if id not in self._rows]
            for begin in range(0, len(missing), _AT_ONCE):
                where = any_of("id", missing[begin : begin + _AT_ONCE])
                for partition in (IMAGE, TEXT):
                    self._rows.update((row["id"], row) for row in self.query(partition, where, WITH_VECTOR))
            try:
                found = [self._rows[id] for id in wanted]
            except KeyError as unknown:
                raise DataError(f"{self.address}: no entry {unknown}; it may have been removed meanwhile") from None
            while len(self._rows) > max(_CACHED_ROWS, len(wanted)):
                self._rows.popitem(last=False)
        return found

    def query(self, partition: str, where: str, fields: Sequence[str]) -> list[Row]:
        """The rows of a partition that meet a condition."""
        return self.read(lambda: self.client.query(self.collection, where, fields, partition, level=self.level))

    def scan(self, partition: str, fields: Sequence[str] = FIELDS, where: str = "") -> list[Row]:
        """All rows of a partition that meet a condition, however many."""
        return self.read(
            lambda: list(scan(self.client, self.collection, partition, fields, level=self.level, where=where))
        )

    def read(self, ask: Callable[[], Answer]) -> Answer:
        """The answer to a question about the collection; asked again if another index has taken its place."""
        try:
            return ask()
        except CollectionGoneError:
            with self._lock:
                collection = self._find()
                if collection == self.collection:
                    raise
                self.collection = collection
            return ask()

    def changed(self) -> None:
        """Note that rows were written or removed."""
        self._is_settled = False

    def forget(self) -> None:
        """Drop what was read: the index has changed."""
        with self._lock:
            self._rows.clear()
            self._small.clear()
            self._known.clear()

    def _find(self) -> str:
        found = self.client.real_name(self._name)
        if found is None:
            raise CollectionGoneError(
                f"{self.address}: no such index; make one: diptych index starter FOLDER --into '{self.address}'"
            )
        return found

    def _refresh(self) -> None:
        """See to it that what was read is at most `_FRESH` seconds older than the index."""
        if time.monotonic() - self._checked > _FRESH:
            _ = self.generation

    def _cached(self, name: str, read: Callable[[], Any]) -> Any:
        with self._lock:
            self._refresh()
            if name not in self._known:
                self._known[name] = read()
            return self._known[name]

    def _options(self) -> dict[str, Any]:
        return self.meta("options") or {"index": self.client.address.index}

    def _facets(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self._cached("facets", self._read_facets)
        return found

    def _read_facets(self) -> dict[str, list[str]]:
        stored: dict[str, list[str]] | None = None if self.meta("unfinished") else self.meta("facets")
        return stored or self.count_facets()

    def count_facets(self) -> dict[str, list[str]]:
        """The folders, splits and columns of all images."""
        folders, splits, columns = set[str](), set[str](), set[str]()
        for row in self.scan(IMAGE, ("folder", "split", "columns")):
            folders.add(row["folder"])
            splits.add(row["split"])
            columns.update(row["columns"])
        return {
            "folders": sorted(folders - {""}),
            "splits": sorted(splits - {""}),
            "columns": sorted(columns),
        }

    def _expression(self, filters: Filters) -> str:
        if filters.album is not None:
            raise DataError(f"{self.address}: albums need an index in an SQLite file; this backend keeps none")
        return filtering.expression(filters, self.splits, self.columns)
