"""What an index is to sync, search and the service, wherever it is stored, and who stores it: a file, or a plug-in.

Everything without a scheme is the path of an SQLite file, and `milvus://host:19530/photos` is a collection in Milvus.
Any other scheme is the name of an entry point of the group `diptych.index_backends`: a class that takes the address and
is an `IndexLocation`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from diptych import plugins
from diptych.data.corpus import Floats, Integers
from diptych.data.header import Header
from diptych.errors import IndexFileError, PluginError, did_you_mean, one_line
from diptych.index.entries import Entry, Filters, Kind
from diptych.index.packed import PackedVectors
from diptych.index.sources.listing import ImageInfo, Stamp
from diptych.index.spec import IndexSpec
from diptych.models.engines.engine import Encodings
from diptych.progress import ProgressCallback

Ids: TypeAlias = Sequence[int] | Integers

_SCHEME = re.compile(r"([a-z][a-z0-9+-]*)://")


class Problem(NamedTuple):
    """Something that was skipped; `size` is None if the source reported it without reading a file."""

    key: str
    size: int | None
    modified: int | None
    reason: str


@dataclass(frozen=True)
class Content:
    """A content to add: its hash, and its vector and set as bytes (see `index.vectors`).

    For an image also its difference hash, what the header of its file says, and a thumbnail as JPEG.
    """

    kind: Kind
    hash: bytes
    vector: bytes
    vector_set: bytes | None = None
    look: int | None = None
    header: Header | None = None
    thumbnail: bytes | None = None


def text_hash(text: str) -> bytes:
    """The hash that identifies the content of a text."""
    return hashlib.sha256(text.encode()).digest()


class IndexWriter(Protocol):
    """Changes an index, within `transaction`; it was made with the keys of files that are gone from the source.

    The entries of a video are its frames (`diptych.index.frames`). The entry of an image that is gone is reused for one
    with the same content under a new key; otherwise `finish` removes it.
    """

    renamed: int  # the number of entries that were reused

    def transaction(self) -> AbstractContextManager[None]:
        """A block whose changes are all made, or none of them; it ends with a new generation."""
        ...

    def begin(self, spec: IndexSpec) -> None:
        """Note that changes have begun (`unfinished` of the store's `meta`), and where model and source are now."""
        ...

    def move_into(self, name: str) -> None:
        """Put the name of a folder before all keys, paths and problems: the index becomes one of several folders."""
        ...

    def set_synced(self, moment: str, files: Mapping[str, Any]) -> None:
        """Note when the index was last compared with its source, and how many files there were (`synced`, `files`)."""
        ...

    def content(self, kind: Kind, digest: bytes) -> int | None:
        """The id of a content by its hash, if the index has it; may be called from several threads."""
        ...

    def content_of(self, key: str) -> int | None:
        """The id of the content of an image by its key."""
        ...

    def frames(self, video: bytes) -> list[bytes]:
        """The hashes of the contents that are frames of the video with this hash, in their order."""
        ...

    def add(self, content: Content) -> int:
        """Add a content that the index does not have, and return its id."""
        ...

    def put_image(self, key: str, content: int, stamp: Stamp, about: ImageInfo) -> None:
        """Add or change the image with this key, and its texts, whose contents must have been added.

        Problems of this image, of its video and of its text file are solved, and those in `about` are noted.
        """
        ...

    def keep_frames(self, video: str, keys: Collection[str]) -> None:
        """Note that the video with this key has only these frames; others are gone."""
        ...

    def put_problem(self, key: str, stamp: Stamp, reason: str, *, permanent: bool) -> None:
        """Note an image that cannot be read; unless the reason is permanent, the next sync tries again."""
        ...

    def finish(
        self, source_problems: Mapping[str, str], solved: Iterable[str], storage_cost: Mapping[str, Any] | None = None
    ) -> int:
        """Remove what is gone and contents without an entry; returns the number of images that were removed.

        `source_problems` are those found without reading an image, and `solved` the keys of earlier problems that no
        longer exist.
        """
        ...


class IndexStore(Protocol):
    """An open index; threads may share it.

    Changes by other processes are visible to the next call; calls within `reading` see the same state.
    """

    @property
    def address(self) -> str:
        """Where the index is, for messages."""
        ...

    @property
    def spec(self) -> IndexSpec:
        """The model and the source of the index."""
        ...

    @property
    def generation(self) -> int:
        """A number that grows with every change by any process."""
        ...

    @property
    def instance(self) -> Hashable:
        """What is at the address now: another value if another index, whose ids start again, has replaced this one."""
        ...

    @property
    def cache_path(self) -> Path | None:
        """The path beside which FAISS caches are kept; None for a backend without them."""
        ...

    def exists(self) -> bool:
        """Whether the index has not been deleted."""
        ...

    def bytes_used(self) -> int:
        """The size of the index on disk or in memory."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """A block within which all calls see the same state; other threads wait until it ends."""
        ...

    def counts(self) -> dict[Kind, int]:
        """The number of entries of each kind."""
        ...

    def vectors(self, kind: Kind) -> tuple[Integers, Floats]:
        """The ids of all entries of a kind, ascending, and their vectors, (entries, size)."""
        ...

    def sets(self, ids: Ids) -> tuple[Floats, ...] | None:
        """The sets of vectors of these entries of one kind, (members, size) each; None if the model has no sets."""
        ...

    def encoded(self, id: int) -> tuple[Kind, Encodings]:
        """The kind of an entry, and its encoding as it was indexed."""
        ...

    def looks(self, ids: Ids) -> NDArray[np.uint64]:
        """The difference hash of the image of each of these entries; near-duplicates differ in a few of the 64 bits."""
        ...

    def videos_of(self, ids: Ids) -> Integers:
        """A number for the video of which each of these images is a frame, 0 for a photo."""
        ...

    def contents_of(self, ids: Ids) -> Integers:
        """The id of the content of each of these entries; equal files share one, and so do equal texts."""
        ...

    def entries(self, ids: Ids) -> list[Entry]:
        """These entries, in the given order; raises DataError for one that is not there."""
        ...

    def captions(self, image_ids: Ids) -> dict[int, list[str]]:
        """The texts of each of these images."""
        ...

    def matching(self, kind: Kind, filters: Filters) -> Integers:
        """The ids of the entries of a kind that pass the filters, ascending; texts are filtered by their image."""
        ...

    def image_stamps(self) -> dict[str, Stamp]:
        """The stamp of every file with an image, by its key; a video has one for all of its frames."""
        ...

    def columns(self) -> list[str]:
        """The columns of the source's table."""
        ...

    def folders(self) -> list[str]:
        """All folders of the source that contain an image, directly or further below."""
        ...

    def splits(self) -> list[str]:
        """The splits of the source."""
        ...

    def thumbnail(self, id: int) -> bytes | None:
        """The thumbnail of an image, or of the image of a text, as JPEG; None if there is no such entry."""
        ...

    def problems(self) -> list[tuple[str, str]]:
        """What was skipped, by its key in the source, and the reason."""
        ...

    def problem_records(self) -> list[Problem]:
        """What was skipped, with the state of the file at that time."""
        ...

    def meta(self, name: str) -> Any:
        """A value that the index has about itself: `synced`, `files`, `unfinished` or `storage_cost`; None if unset."""
        ...

    def writer(self, gone: Iterable[str]) -> IndexWriter:
        """What changes the index, for a store that was opened for writing; `gone` are keys no longer in the source."""
        ...

    def close(self) -> None:
        """Release what the store holds."""
        ...


@runtime_checkable
class Browsable(Protocol):
    """What a store also has if its images can be browsed by day and by folder; a backend need not support it."""

    def newest(
        self, count: int, after: tuple[str, int] | None = None, filters: Filters | None = None
    ) -> list[tuple[str, int]]:
        """Day and id of the next `count` images that pass the filters, newest first, after a place."""
        ...

    def subfolders(self, parent: str = "") -> list[tuple[str, int, bool]]:
        """The folders directly in a folder: path, how many images `newest` shows of it, and whether it has folders."""
        ...


@runtime_checkable
class Packable(Protocol):
    """What a store also has if its vectors can be read as they are stored; see `index.vector_cache`."""

    def packed(self, kind: Kind) -> Iterator[tuple[Integers, PackedVectors]]:
        """The ids of all entries of a kind, ascending, and their vectors, some at a time; within `reading`."""
        ...


class IndexLocation(Protocol):
    """A place where an index is or may be created; as a string, its address. Made from the address alone."""

    def exists(self) -> bool:
        """Whether there is an index."""
        ...

    def open(self, *, write: bool = False) -> IndexStore:
        """Open the index; raises an IndexFileError if it is missing, damaged, or of another format."""
        ...

    def create(self, spec: IndexSpec) -> IndexStore:
        """Create an index without entries, open for writing."""
        ...

    def locked(self) -> AbstractContextManager[Any]:
        """A block within which no other process changes the index; raises an IndexFileError if another one does."""
        ...

    def check_target(self, *, fresh: bool) -> None:
        """Refuse a place that no index can be written to, or with `fresh` one whose contents must not be replaced."""
        ...

    def replacement(self) -> Self:
        """Where an index is made that will replace this one."""
        ...

    def replace(self, by: Self) -> None:
        """Put another index in the place of this one, at once for those who search it."""
        ...

    def remove(self) -> None:
        """Delete the index, if any."""
        ...

    def examine(self, progress: ProgressCallback | None = None) -> Iterator[str]:
        """One line per fault of the index; none if it is sound."""
        ...


def locate(address: str | Path) -> IndexLocation:
    """The location that an address names: by its scheme, if it has one, otherwise an SQLite file."""
    scheme = _SCHEME.match(address) if isinstance(address, str) else None
    if scheme is None:
        from diptych.index.sqlite.location import SQLiteLocation

        return SQLiteLocation(Path(address))
    if scheme[1] == "milvus":
        return _milvus(str(address))
    known = plugins.installed("index_backends")
    if scheme[1] not in known:
        hint = did_you_mean(scheme[1], known) if known else "install a package that offers it, or name a file"
        raise IndexFileError(f"{address}: no index backend {scheme[1]!r} is installed; {hint}")
    try:
        make: Callable[[str], IndexLocation] = plugins.load_installed("index_backends", scheme[1])
    except PluginError as reason:
        raise IndexFileError(f"{address}: {reason}") from reason
    try:
        return make(str(address))
    except (TypeError, ValueError) as reason:
        raise IndexFileError(f"{address}: not an address of {scheme[1]!r} ({one_line(reason)})") from reason


def _milvus(address: str) -> IndexLocation:
    from diptych.index.milvus.location import MilvusLocation

    try:
        return MilvusLocation.parse(address)
    except ValueError as reason:
        shown = re.sub(r"//[^/]*@", "//", address)  # without a password
        raise IndexFileError(f"{shown}: {reason}") from None
