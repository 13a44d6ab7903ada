"""An index backend: `memory://NAME` keeps an index in the memory of the process.

It shows everything that a backend has to offer, as in `diptych.index.backend`: a writer, a store and a location.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.data.header import Header
from diptych.errors import DataError, IndexFileError
from diptych.index.backend import Content, Ids, IndexLocation, Problem
from diptych.index.entries import Entry, Filters, Kind
from diptych.index.frames import file_key, number_names
from diptych.index.sources.listing import Stamp
from diptych.index.spec import IndexSpec
from diptych.index.vectors import decode, decode_set
from diptych.models.engines.engine import Encodings
from diptych.progress import ProgressCallback
from diptych_example.memory_writer import MemoryIndex, MemoryWriter, Row, State

_indexes: dict[str, MemoryIndex] = {}
_writers = threading.Lock()


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

    def videos_of(self, ids: Ids) -> Integers:
        """A number for the video of which each of these images is a frame, 0 for a photo."""
        videos = [None if row.info.moment is None else file_key(row.key, row.info.moment) for row in self._rows(ids)]
        return number_names(videos)

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
        """The stamp of every file with an image, by its key."""
        images = (row for row in self._state.rows.values() if row.kind == "image")
        return {file_key(row.key, row.info.moment): row.stamp for row in images}

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
        image = self._image(row)
        about, content = image.info, self._content(image)
        path = self.spec.file_of(about.path)
        header = content.header or Header(0, 0)
        taken = header.taken
        if taken is None and image.stamp[1]:
            taken = time.strftime("%Y-%m-%d", time.localtime(image.stamp[1] / 1e9))
        folder, size = image.key.rpartition("/")[0], (header.width, header.height)
        shown = id if row.image is None else row.image
        described = about.split, taken, *size, about.columns, about.moment
        return Entry(id, row.kind, row.key, shown, row.text, path, folder, *described)


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
