"""An index backend: `memory://NAME` keeps an index in the memory of the process.

It shows everything that a backend has to offer, in the order of `diptych.index.backend`: a writer, a store and a
location. A transaction that fails leaves the index as it was, because changes are made to a copy.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError, IndexFileError
from diptych.index.backend import Content, Ids, IndexLocation, IndexSpec, Problem, text_hash
from diptych.index.entries import Entry, Filters, Kind
from diptych.index.source import ImageInfo, Stamp
from diptych.index.vectors import decode, decode_set
from diptych.models.engines.engine import Encodings
from diptych.progress import ProgressCallback

NOTHING = ImageInfo(None, ())


@dataclass(frozen=True)
class Row:
    """An image or a text; a text has the id of its `image`."""

    kind: Kind
    key: str
    content: int
    image: int | None = None
    text: str | None = None
    place: int = 0  # among the texts of its image
    stamp: Stamp = (0, 0, None)
    info: ImageInfo = NOTHING


@dataclass
class State:
    """The whole index; ids are never used twice."""

    spec: IndexSpec
    generation: int = field(default_factory=time.time_ns)
    last_id: int = 0
    contents: dict[int, Content] = field(default_factory=dict)
    by_hash: dict[tuple[Kind, bytes], int] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def new_id(self) -> int:
        """The next free number."""
        self.last_id += 1
        return self.last_id

    def images(self) -> dict[str, int]:
        """The id of every image, by its key."""
        return {row.key: id for id, row in self.rows.items() if row.kind == "image"}

    def copy(self) -> State:
        """A copy that can be changed; contents and rows themselves never change."""
        changed = copy.copy(self)
        for name in ("contents", "by_hash", "rows", "problems", "meta"):
            setattr(changed, name, dict(getattr(self, name)))
        return changed


class MemoryIndex:
    """What is behind an address."""

    def __init__(self, spec: IndexSpec) -> None:
        self.state = State(spec)
        self.lock = threading.RLock()


_indexes: dict[str, MemoryIndex] = {}
_writers = threading.Lock()


class MemoryWriter:
    """Changes an index in memory."""

    def __init__(self, index: MemoryIndex, gone: Iterable[str]) -> None:
        self._index = index
        self._gone = set(gone)
        self.renamed = 0

    @property
    def _state(self) -> State:
        return self._index.state

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes are all made, or none of them."""
        with self._index.lock:
            before, self._index.state = self._index.state, self._index.state.copy()
            try:
                yield
            except BaseException:
                self._index.state = before
                raise
            self._state.generation += 1

    def begin(self, spec: IndexSpec) -> None:
        """Note that changes have begun."""
        with self.transaction():
            self._state.spec = spec
            self._state.meta["unfinished"] = True

    def set_synced(self, moment: str) -> None:
        """Note when the index was last compared with its source."""
        self._state.meta["synced"] = moment

    def content(self, kind: Kind, digest: bytes) -> int | None:
        """The id of a content by its hash, if the index has it."""
        return self._state.by_hash.get((kind, digest))

    def content_of(self, key: str) -> int | None:
        """The id of the content of an image by its key."""
        id = self._state.images().get(key)
        return None if id is None else self._state.rows[id].content

    def add(self, content: Content) -> int:
        """Add a content."""
        id = self._state.new_id()
        self._state.contents[id] = content
        self._state.by_hash[content.kind, content.hash] = id
        return id

    def put_image(self, key: str, content: int, stamp: Stamp, about: ImageInfo) -> None:
        """Add or change an image and its texts; one whose key is gone is renamed if it has the same content."""
        state, images = self._state, self._state.images()
        id = images.get(key)
        if id is None:
            old = next((old for old in self._gone & images.keys() if state.rows[images[old]].content == content), None)
            if old is not None:
                self._gone.remove(old)
                self.renamed += 1
            id = state.new_id() if old is None else images[old]
        state.rows[id] = Row("image", key, content, stamp=stamp, info=about)
        texts = {row.text: text_id for text_id, row in state.rows.items() if row.image == id}
        for text_id in texts.values():
            del state.rows[text_id]
        for place, text in enumerate(about.texts):  # a text that stays keeps its id
            row = Row("text", f"{key}#{place}", state.by_hash["text", text_hash(text)], id, text, place)
            state.rows[texts.pop(text, 0) or state.new_id()] = row
        for solved in (key, about.text_file):
            state.problems.pop(str(solved), None)
        for broken, reason in about.problems.items():
            state.problems[broken] = Problem(broken, 0, 0, reason)

    def put_problem(self, key: str, stamp: Stamp, reason: str, *, permanent: bool) -> None:
        """Note an image that cannot be read."""
        self._state.problems[key] = Problem(key, stamp[0], stamp[1] if permanent else -1, reason)
        if permanent:
            self._gone.add(key)

    def finish(
        self, source_problems: Mapping[str, str], solved: Iterable[str], storage_cost: Mapping[str, Any] | None = None
    ) -> int:
        """Remove what is gone, and contents without an entry."""
        state = self._state
        removed = {id for key, id in state.images().items() if key in self._gone}
        state.rows = {id: row for id, row in state.rows.items() if id not in removed and row.image not in removed}
        used = {row.content for row in state.rows.values()}
        state.contents = {id: content for id, content in state.contents.items() if id in used}
        state.by_hash = {(content.kind, content.hash): id for id, content in state.contents.items()}
        forgotten = set(solved)
        state.problems = {
            key: problem for key, problem in state.problems.items() if problem.size is not None and key not in forgotten
        }
        state.problems |= {key: Problem(key, None, None, reason) for key, reason in source_problems.items()}
        if storage_cost is not None:
            state.meta["storage_cost"] = dict(storage_cost)
        state.meta["unfinished"] = False
        return len(removed)


class MemoryStore:
    """An open index in memory."""

    cache_path: Path | None = None

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    def _index(self) -> MemoryIndex:
        if self.address not in _indexes:
            raise IndexFileError(f"{self.address}: no such index in this process; make one with diptych.sync")
        return _indexes[self.address]

    @property
    def _state(self) -> State:
        return self._index.state

    @property
    def spec(self) -> IndexSpec:
        """The model and the source of the index."""
        return self._state.spec

    @property
    def generation(self) -> int:
        """A number that grows with every change."""
        return self._state.generation

    @property
    def instance(self) -> Hashable:
        """The index behind the address."""
        return self._index

    def exists(self) -> bool:
        """Whether the index has not been deleted."""
        return self.address in _indexes

    def bytes_used(self) -> int:
        """The size of the vectors and thumbnails."""
        parts = ((one.vector, one.vector_set, one.thumbnail) for one in self._state.contents.values())
        return sum(len(part or b"") for content in parts for part in content)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block within which all calls see the same state."""
        with self._index.lock:
            yield

    def counts(self) -> dict[Kind, int]:
        """The number of entries of each kind."""
        kinds = [row.kind for row in self._state.rows.values()]
        return {"image": kinds.count("image"), "text": kinds.count("text")}

    def vectors(self, kind: Kind) -> tuple[Integers, Floats]:
        """The ids of all entries of a kind, ascending, and their vectors."""
        state = self._state
        ids = sorted(id for id, row in state.rows.items() if row.kind == kind)
        stored = [state.contents[state.rows[id].content].vector for id in ids]
        return np.array(ids, np.int64), decode(stored, state.spec.storage, state.spec.size)

    def sets(self, ids: Ids) -> tuple[Floats, ...] | None:
        """The sets of vectors of these entries; None if the model has no sets."""
        stored = [self._content(row).vector_set for row in self._rows(ids)]
        return None if None in stored else tuple(decode_set(one) for one in stored if one is not None)

    def encoded(self, id: int) -> tuple[Kind, Encodings]:
        """The kind of an entry, and its encoding."""
        (row,), spec = self._rows([id]), self.spec
        return row.kind, Encodings(decode([self._content(row).vector], spec.storage, spec.size), self.sets([id]))

    def looks(self, ids: Ids) -> NDArray[np.uint64]:
        """The difference hash of the image of each of these entries."""
        return np.array([self._content(self._image(row)).look or 0 for row in self._rows(ids)], np.uint64)

    def contents_of(self, ids: Ids) -> Integers:
        """The id of the content of each of these entries."""
        return np.array([row.content for row in self._rows(ids)], np.int64)

    def entries(self, ids: Ids) -> list[Entry]:
        """These entries, in the given order."""
        return [self._entry(int(id), row) for id, row in zip(ids, self._rows(ids), strict=True)]

    def captions(self, image_ids: Ids) -> dict[int, list[str]]:
        """The texts of each of these images."""
        captions: dict[int, list[str]] = {int(id): [] for id in image_ids}
        for row in sorted(self._state.rows.values(), key=lambda row: row.place):
            if row.image in captions:
                captions[row.image].append(row.text or "")
        return captions

    def matching(self, kind: Kind, filters: Filters) -> Integers:
        """The ids of the entries of a kind that pass the filters, ascending."""
        rows = self._state.rows.items()
        entries = [self._entry(id, row) for id, row in rows if row.kind == kind]
        return np.array(sorted(entry.id for entry in entries if _passes(entry, filters)), np.int64)

    def image_stamps(self) -> dict[str, Stamp]:
        """The stamp of every image, by its key."""
        return {row.key: row.stamp for row in self._state.rows.values() if row.kind == "image"}

    def columns(self) -> list[str]:
        """The columns of the source's table."""
        return sorted({column for row in self._state.rows.values() for column in row.info.columns})

    def folders(self) -> list[str]:
        """All folders of the source that contain an image."""
        parents = {parent for key in self.image_stamps() for parent in Path(key).parents}
        return sorted(parent.as_posix() for parent in parents if parent != Path())

    def splits(self) -> list[str]:
        """The splits of the source."""
        return sorted({row.info.split for row in self._state.rows.values() if row.info.split is not None})

    def thumbnail(self, id: int) -> bytes | None:
        """The thumbnail of an image, or of the image of a text."""
        row = self._state.rows.get(id)
        return None if row is None else self._content(self._image(row)).thumbnail

    def problems(self) -> list[tuple[str, str]]:
        """What was skipped, and the reason."""
        return sorted((problem.key, problem.reason) for problem in self._state.problems.values())

    def problem_records(self) -> list[Problem]:
        """What was skipped, with the state of the file at that time."""
        return list(self._state.problems.values())

    def meta(self, name: str) -> Any:
        """A value that the index stores about itself."""
        return self._state.meta.get(name)

    def writer(self, gone: Iterable[str]) -> MemoryWriter:
        """What changes the index."""
        return MemoryWriter(self._index, gone)

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, ids: Ids) -> list[Row]:
        rows = self._state.rows
        missing = [id for id in ids if int(id) not in rows]
        if missing:
            raise DataError(f"{self.address}: no entry {missing[0]}; it may have been removed meanwhile")
        return [rows[int(id)] for id in ids]

    def _image(self, row: Row) -> Row:
        return row if row.image is None else self._state.rows[row.image]

    def _content(self, row: Row) -> Content:
        return self._state.contents[row.content]

    def _entry(self, id: int, row: Row) -> Entry:
        image, root = self._image(row), self.spec.root
        about, content = image.info, self._content(image)
        path = None if about.path is None or root is None else str(Path(root, about.path))
        taken = content.taken
        if taken is None and image.stamp[1]:
            taken = time.strftime("%Y-%m-%d", time.localtime(image.stamp[1] / 1e9))
        folder, size = image.key.rpartition("/")[0], (content.width or 0, content.height or 0)
        shown = id if row.image is None else row.image
        return Entry(id, row.kind, row.key, shown, row.text, path, folder, about.split, taken, *size, about.columns)


def _passes(entry: Entry, filters: Filters) -> bool:
    folder = (filters.folder or "").strip("/")
    return (
        folder in ("", ".", entry.folder, *(parent.as_posix() for parent in Path(entry.folder).parents))
        and (filters.since is None or (entry.taken or "") >= filters.since)
        and (filters.until is None or (entry.taken or "9") <= filters.until)
        and filters.split in (None, entry.split)
        and all(entry.columns.get(column) == value for column, value in filters.columns)
    )


@dataclass(frozen=True)
class MemoryLocation:
    """An address such as memory://photos."""

    address: str

    def __post_init__(self) -> None:
        if not self.address.removeprefix("memory://"):
            raise ValueError("write memory://NAME")

    def __str__(self) -> str:
        return self.address

    def exists(self) -> bool:
        """Whether there is an index."""
        return self.address in _indexes

    def open(self, *, write: bool = False) -> MemoryStore:
        """Open the index."""
        store = MemoryStore(self.address)
        _ = store.spec  # raises if there is none
        return store

    def create(self, spec: IndexSpec) -> MemoryStore:
        """Create an index without entries."""
        _indexes[self.address] = MemoryIndex(spec)
        return self.open(write=True)

    def locked(self) -> AbstractContextManager[Any]:
        """A block within which no other thread writes."""
        return _writers

    def check_target(self, *, fresh: bool) -> None:
        """Every address will do."""

    def replacement(self) -> MemoryLocation:
        """Where an index is made that will replace this one."""
        return MemoryLocation(f"{self.address}.new")

    def replace(self, by: MemoryLocation) -> None:
        """Put another index in the place of this one."""
        _indexes[self.address] = _indexes.pop(by.address)

    def remove(self) -> None:
        """Delete the index."""
        _indexes.pop(self.address, None)

    def examine(self, progress: ProgressCallback | None = None) -> Iterator[str]:
        """Memory has no faults to find."""
        return iter(())


if TYPE_CHECKING:  # a type checker reports what is missing
    _is_a_backend: Callable[[str], IndexLocation] = MemoryLocation
