"""The vectors of an index in a file beside it, which every process that searches the index maps into its memory.

The index itself stores the vectors among other things, which cannot be mapped. The file has them in the same numbers,
with their ids, and belongs to one generation of the index: the first process that searches another generation writes it
again, under a lock, and renames it into place; a process that still searches the old one keeps the old file. It can be
deleted at any time.

The layout is the header, in JSON; then ids, lengths, scales (int8 only) and vectors, each as one array.
"""

from __future__ import annotations

import glob
import json
import mmap
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, get_args

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError, IndexFileError
from diptych.files import atomic_write, locked_file
from diptych.index.backend import IndexStore, Packable
from diptych.index.entries import Kind
from diptych.index.exact import Pool
from diptych.index.packed import PackedVectors, norms
from diptych.index.vectors import STORAGES, TYPES, Storage

ABOVE = 200_000  # entries; with fewer, a copy in float32 is faster and still small

_FORMAT = 1
_MAGIC = b"diptych vectors\n"
_HEADER = 4096  # bytes, magic included
_PATIENCE = 600.0  # seconds to wait while another process writes the file
_CHECKED = 16  # vectors that are compared with those of the index when a file is opened


class _LockedError(IndexFileError):
    """Another process writes the file for too long, or its folder cannot be written to."""


class PackableStore(IndexStore, Packable, Protocol):
    """A store whose vectors can be read as they are stored."""


@dataclass(frozen=True)
class Header:
    """The header of the file: the entries that it has.

    `about` is the checksum of ids, lengths and scales, which is checked whenever the file is opened, and `vectors` that
    of the vectors.
    """

    format: int
    identity: str
    generation: int
    entries: int
    size: int
    storage: Storage
    about: int
    vectors: int


@dataclass(frozen=True)
class _Layout:
    """Where the arrays are in the file, in bytes."""

    norms: int
    scales: int
    vectors: int
    end: int

    @classmethod
    def of(cls, entries: int, size: int, storage: Storage) -> _Layout:
        norms = _HEADER + 8 * entries
        scales = norms + 4 * entries
        vectors = -(-(scales + (4 * entries if storage == "int8" else 0)) // _HEADER) * _HEADER
        return cls(norms, scales, vectors, vectors + entries * size * np.dtype(TYPES[storage]).itemsize)


def cache_file(index: Path, kind: Kind, storage: Storage | None = None) -> Path:
    """The path of the file of an index: with vectors as the index stores them, or in another storage type."""
    return index.with_name(f"{index.name}.{kind}.{storage or 'vectors'}")


def packed_pool(store: IndexStore, kind: Kind, storage: Storage | None = None) -> tuple[Pool, str | None]:
    """All entries of a kind, with their vectors in a mapped file; if it cannot be written, in memory, and why.

    Of a store that keeps no caches they are in memory as well. The vectors are as the index stores them, or are
    converted to another storage type.
    """
    if not isinstance(store, Packable):
        return Pool(*store.vectors(kind)), None
    path = store.cache_path
    if path is None:
        return _in_memory(store, kind, storage), None
    file = cache_file(path, kind, storage)
    found = load(file, store, kind, storage)
    if found is not None:
        return found, None
    try:
        with locked_file(file, _LockedError, _PATIENCE):
            found = load(file, store, kind, storage)  # another process may have written it meanwhile
            if found is None:
                _remove_leftovers(file)
                found = _write(file, store, kind, storage)
            return found, None
    except OSError as reason:
        why = f"{file}: cannot be written ({reason.strerror}), so vectors are held in memory"
    except _LockedError as reason:
        why = f"{reason}; vectors are held in memory"
    return _in_memory(store, kind, storage), why


def load(file: Path, store: PackableStore, kind: Kind, storage: Storage | None = None) -> Pool | None:
    """The entries in a file, or None if it is missing, damaged or not of the present generation of the index."""
    with store.reading():
        spec, generation = store.spec, store.generation
        try:
            with file.open("rb") as opened:
                header = _parse_header(opened.read(_HEADER))
                wanted = (spec.identity, spec.size, storage or spec.storage, generation, store.counts()[kind])
                if header is None or wanted != _belonging(header):
                    return None
                pool = _mapped(opened.fileno(), header)
        except (OSError, ValueError):  # ValueError: shorter than its header says
            return None
        if _about(pool) != header.about or not _agrees(pool, store, header.storage):
            return None
        return pool


def describe(store: IndexStore) -> list[str]:
    """One line per file of an index: what it has, and whether it is older than the index."""
    lines: list[str] = []
    path = store.cache_path
    if path is None:
        return lines
    for file in (cache_file(path, kind, storage) for kind in get_args(Kind) for storage in (None, *STORAGES)):
        if not file.exists():
            continue
        header = read_header(file)
        if header is None:
            lines.append(f"{file.name}: damaged; the next search writes it again")
            continue
        is_stale = (header.identity, header.generation) != (store.spec.identity, store.generation)
        note = "; older than the index, written again by the next search" if is_stale else ""
        lines.append(f"{file.name}: {header.entries:,} vectors in {header.storage} for searching{note}")
    return lines


def read_header(file: Path) -> Header | None:
    """The header of a file; None if it is missing or damaged."""
    try:
        with file.open("rb") as opened:
            header = _parse_header(opened.read(_HEADER))
            end = opened.seek(0, 2)
    except OSError:
        return None
    is_whole = header is not None and end == _Layout.of(header.entries, header.size, header.storage).end
    return header if is_whole else None


def _belonging(header: Header) -> tuple[str, int, Storage, int, int]:
    return header.identity, header.size, header.storage, header.generation, header.entries


def _write(file: Path, store: PackableStore, kind: Kind, storage: Storage | None) -> Pool:
    """Write the file from one state of the index, and map it."""
    with store.reading(), atomic_write(file) as temporary:
        spec, entries = store.spec, store.counts()[kind]
        storage = storage or spec.storage
        layout = _Layout.of(entries, spec.size, storage)
        collected, checksum = _Collected(), 0
        with temporary.open("r+b") as out:
            out.seek(layout.vectors)
            for ids, stored in store.packed(kind):
                vectors = stored.stored_as(storage)
                collected.add(ids, vectors)
                codes = np.ascontiguousarray(vectors.codes)
                checksum = zlib.crc32(codes.data, checksum)
                out.write(codes.data)
            ids, lengths, scales = collected.arrays(storage)
            _check_complete(store, kind, len(ids), entries)
            out.seek(_HEADER)
            out.write(ids.data)
            out.write(lengths.data)
            out.write(b"" if scales is None else scales.data)
            out.truncate(layout.end)
            about = _checksum(ids, lengths, scales)
            header = Header(_FORMAT, spec.identity, store.generation, entries, spec.size, storage, about, checksum)
            out.seek(0)
            out.write((_MAGIC + json.dumps(asdict(header)).encode() + b"\n").ljust(_HEADER))
            out.flush()
            return _mapped(out.fileno(), header)


def _remove_leftovers(file: Path) -> None:
    """Remove what a process left that was killed while it wrote the file."""
    for leftover in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _in_memory(store: PackableStore, kind: Kind, storage: Storage | None = None) -> Pool:
    """The same without a file."""
    with store.reading():
        storage = storage or store.spec.storage
        codes = np.empty((store.counts()[kind], store.spec.size), TYPES[storage])
        collected, end = _Collected(), 0
        for ids, stored in store.packed(kind):
            vectors = stored.stored_as(storage)
            collected.add(ids, vectors)
            begin, end = end, end + len(ids)
            codes[begin:end] = vectors.codes
    ids, lengths, scales = collected.arrays(storage)
    _check_complete(store, kind, len(ids), len(codes))
    return Pool(ids, PackedVectors(codes, scales), norms=lengths)


def _check_complete(store: IndexStore, kind: Kind, found: int, entries: int) -> None:
    if found != entries:
        raise IndexFileError(
            f"{store.address}: only {found:,} of {entries:,} {kind}s have a vector; "
            f"`diptych index rebuild {store.address}` rebuilds it from the images"
        )


class _Collected:
    """The ids, lengths and scales of the vectors that have been read."""

    def __init__(self) -> None:
        self._ids, self._norms, self._scales = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], [_NO_SCALES]

    def add(self, ids: Integers, vectors: PackedVectors) -> None:
        self._ids.append(ids)
        self._norms.append(norms(vectors))
        if vectors.scales is not None:
            self._scales.append(vectors.scales)

    def arrays(self, storage: Storage) -> tuple[Integers, Floats, Floats | None]:
        scales = np.concatenate(self._scales) if storage == "int8" else None
        return np.concatenate(self._ids), np.concatenate(self._norms), scales


_NO_SCALES = np.zeros(0, np.float32)


def _mapped(handle: int, header: Header) -> Pool:
    """The entries in an open file; ValueError if it is shorter or longer than its header says."""
    layout = _Layout.of(header.entries, header.size, header.storage)
    content = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    if len(content) != layout.end:
        raise ValueError(f"{len(content)} bytes instead of {layout.end}")
    count = header.entries
    ids = np.frombuffer(content, "<i8", count, _HEADER)
    lengths = np.frombuffer(content, "<f4", count, layout.norms)
    scales = np.frombuffer(content, "<f4", count, layout.scales) if header.storage == "int8" else None
    codes = np.frombuffer(content, TYPES[header.storage], count * header.size, layout.vectors)
    return Pool(ids, PackedVectors(codes.reshape(count, header.size), scales), norms=lengths)


def _about(pool: Pool) -> int:
    assert isinstance(pool.vectors, PackedVectors)
    return _checksum(pool.ids, pool.norms, pool.vectors.scales)


def _checksum(ids: Integers, lengths: Floats, scales: Floats | None) -> int:
    found = zlib.crc32(lengths.data, zlib.crc32(ids.data))
    return found if scales is None else zlib.crc32(scales.data, found)


def _agrees(pool: Pool, store: IndexStore, storage: Storage) -> bool:
    """Whether some vectors of the file are those that the index has under the same ids."""
    some = np.random.default_rng().integers(len(pool.ids), size=_CHECKED if len(pool.ids) else 0).tolist()

    def stored(row: int) -> Floats:
        vectors = store.encoded(int(pool.ids[row]))[1].vectors
        return vectors if storage == store.spec.storage else PackedVectors(vectors).stored_as(storage)[:]

    try:
        return all(np.array_equal(stored(row), pool.vectors[row : row + 1]) for row in some)
    except DataError:  # the index has no such entry
        return False


def _parse_header(content: bytes) -> Header | None:
    try:
        header = Header(**json.loads(content.removeprefix(_MAGIC)))
    except (ValueError, TypeError):
        return None
    is_known = content.startswith(_MAGIC) and header.format == _FORMAT and header.storage in STORAGES
    return header if is_known and header.entries >= 0 and header.size > 0 else None
