"""A FAISS IVF index as a cache file beside an index, for faster search of many entries (extra `[faiss]`).

Entries are clustered into cells, and a query probes a few of them. The cache only selects candidates, which are scored
exactly with the vectors of the index. The header of the file identifies the entries and states the recall against
exact search; a file that is stale or damaged is built again, and it can be deleted at any time. Processes map it into
memory, and share it. Vectors inside take one byte per number, or with product quantisation one byte per eight numbers,
for which more candidates are scored.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.errors import DiptychError
from diptych.files import atomic_write
from diptych.index.entries import Kind, Method
from diptych.index.exact import Pool
from diptych.index.packed import Vectors, blocks
from diptych.machine import available_cores

if TYPE_CHECKING:
    from diptych.index.backend import IndexStore

IvfCodes = Literal["int8", "pq"]

ABOVE = 200_000  # entries; with fewer, exact search is fast enough
NEEDS_FAISS = "needs faiss: pip install 'diptych[faiss]'"
RECALL = 0.95  # cells are added until this recall is reached

_FORMAT = 2
_MAGIC = b"diptych ivf\n"
_NEAREST = 10
_RESCORED = {"int8": 40, "pq": 256}  # candidates that are scored exactly
_MOST_RESCORED = 4096
_ROUNDS = 10  # of k-means for product quantisation
_NUMBERS_PER_BYTE = 8  # of product quantisation
_QUERIES = 256  # per kind, to measure the recall with
_PER_CELL = 64  # entries per cell that k-means is trained on
_LONGEST_HEADER = 1 << 16
_BLOCK = 1 << 20
_ENDINGS = {"int8": "ivf", "pq": "pq"}


@dataclass(frozen=True)
class Header:
    """The header of the file: the entries that the cache was built from, and its recall.

    `recall` is the share of the ten exact best hits that are found by the queries described by `asked`, which are those
    with the lowest recall. At least `depth` candidates are scored. `payload` is the checksum of the FAISS index.
    """

    format: int
    identity: str
    generation: int
    entries: int
    checksum: int
    codes: IvfCodes
    cells: int
    probes: int
    depth: int
    recall: float
    asked: str
    payload: int


@dataclass(frozen=True)
class Ivf:
    """A FAISS index over the vectors of a pool, and its header."""

    header: Header
    index: Any

    def candidates(self, queries: Floats, count: int, allowed: Integers | None = None) -> list[Integers]:
        """At most `count` rows of the pool per query, (queries, size), or more if the codes need it.

        Only rows in `allowed` are candidates, if given.
        """
        return _probe(self.index, queries, max(count, self.header.depth), self.header.probes, allowed)

    @property
    def method(self) -> Method:
        """The name of this way to select candidates."""
        return "pq" if self.header.codes == "pq" else "ivf"

    @property
    def entries(self) -> int:
        """The number of entries of the pool."""
        return self.header.entries


def available() -> bool:
    """Whether FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None


def cache_file(index: Path, kind: Kind, codes: IvfCodes = "int8") -> Path:
    """The path of the cache of an index."""
    return index.with_name(f"{index.name}.{kind}.{_ENDINGS[codes]}")


def checksum(pool: Pool) -> int:
    """A checksum of the entries of a pool."""
    found = zlib.crc32(pool.ids.data) if len(pool.ids) else 0
    for block in blocks(pool.vectors):
        found = zlib.crc32(np.ascontiguousarray(block).data, found)
    return found


def build(file: Path, pool: Pool, other: Vectors, identity: str, generation: int, codes: IvfCodes = "int8") -> Ivf:
    """Build the cache of a pool and write it to a file; the recall is also measured with `other`, of the other kind."""
    faiss = _faiss()
    size, cells = pool.vectors.shape[1], _cells(len(pool.ids))
    quantizer, product = faiss.IndexFlatIP(size), faiss.METRIC_INNER_PRODUCT
    if codes == "pq":
        index = faiss.IndexIVFPQ(quantizer, size, cells, _code_bytes(size), 8, product)
        index.pq.cp.niter, index.pq.cp.max_points_per_centroid = _ROUNDS, _PER_CELL  # more rounds gain nothing
    else:
        index = faiss.IndexIVFScalarQuantizer(quantizer, size, cells, faiss.ScalarQuantizer.QT_8bit, product)
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, _PER_CELL
    some = np.random.default_rng(0).permutation(len(pool.ids))[: cells * _PER_CELL]
    with _all_cores(faiss):
        index.train(pool.vectors[np.sort(some)])
        for block in blocks(pool.vectors):
            index.add(np.ascontiguousarray(block))
    probes, depth, recall, asked = _tune(index, pool, other, codes)
    payload = faiss.serialize_index(index)
    header = Header(
        _FORMAT, identity, generation, len(pool.ids), checksum(pool), codes, cells, probes, depth, recall, asked,
        zlib.crc32(payload.data),
    )  # fmt: skip
    with atomic_write(file) as temporary, temporary.open("wb") as out:
        out.write(_MAGIC + json.dumps(asdict(header)).encode() + b"\n")
        out.write(payload.data)
    return load(file, pool, identity, generation) or Ivf(header, index)


def load(file: Path, pool: Pool, identity: str, generation: int) -> Ivf | None:
    """The cache in a file, or None if it is missing, damaged or belongs to other entries."""
    header = _read_header(file)
    if header is None or header.identity != identity or header.entries != len(pool.ids):
        return None
    # A change of the index that left these entries alone does not invalidate the cache.
    if header.generation != generation and header.checksum != checksum(pool):
        return None
    try:
        index = _map(file, header)
    except (OSError, RuntimeError):  # RuntimeError: written by another version of FAISS
        return None
    if index is None or _read_header(file) != header:  # another process has replaced the file meanwhile
        return None
    return Ivf(header, index)


def describe(store: IndexStore) -> list[str]:
    """One line per cache of an index: its recall against exact search, and whether it is stale."""
    lines: list[str] = []
    path = store.cache_path
    if path is None:
        return lines
    files = [cache_file(path, kind, codes) for kind in get_args(Kind) for codes in get_args(IvfCodes)]
    for file in files:
        if not file.exists():
            continue
        header = _read_header(file)
        if header is None:
            lines.append(f"{file.name}: damaged; the next search builds it again")
            continue
        is_stale = header.identity != store.spec.identity or header.generation != store.generation
        note = "; older than the index, checked by the next search" if is_stale else ""
        lines.append(
            f"{file.name}: recall@10 {header.recall:.3f} against exact search (measured with {header.asked}), "
            f"{header.probes} of {header.cells:,} cells probed, {header.depth:,} candidates scored, "
            f"{header.entries:,} entries{note}"
        )
    return lines


def _faiss() -> Any:
    try:
        faiss = importlib.import_module("faiss")
    except ImportError:
        raise DiptychError(f"an IVF {NEEDS_FAISS}") from None
    return faiss


@contextmanager
def _all_cores(faiss: Any) -> Iterator[None]:
    """Let FAISS use all cores for a while: it shares its number of threads with torch, and so with a training."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(available_cores())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _cells(entries: int) -> int:
    return max(1, min(round(2 * math.sqrt(entries)), entries // 32))


def _probe(index: Any, queries: Floats, count: int, probes: int, allowed: Integers | None = None) -> list[Integers]:
    faiss = _faiss()
    parameters = faiss.SearchParametersIVF(nprobe=probes)
    if allowed is not None:
        parameters = faiss.SearchParametersIVF(nprobe=probes, sel=faiss.IDSelectorBatch(allowed))
    with _all_cores(faiss):
        _, rows = index.search(np.ascontiguousarray(queries), min(count, index.ntotal), params=parameters)
    return [np.sort(found[found >= 0]) for found in rows]


def _code_bytes(size: int) -> int:
    """The bytes of a vector with product quantisation, each of which stands for equally many numbers."""
    return next(count for count in range(max(1, size // _NUMBERS_PER_BYTE), 0, -1) if size % count == 0)


def _tune(index: Any, pool: Pool, other: Vectors, codes: IvfCodes) -> tuple[int, int, float, str]:
    """The number of cells to probe and of candidates to score; the recall; what it was measured with.

    Cells are doubled until `RECALL` is reached; so are candidates of product quantisation, whichever helps more.
    """
    random = np.random.default_rng(1)
    sources: dict[str, Vectors] = {"entries of its own kind": pool.vectors, "entries of the other kind": other}
    sampled = {
        name: vectors[np.sort(random.permutation(len(vectors))[:_QUERIES])]
        for name, vectors in sources.items()
        if len(vectors)
    }
    exact = {name: [found.rows for found in pool.top(queries, _NEAREST)] for name, queries in sampled.items()}

    def worst(probes: int, depth: int) -> tuple[float, str]:
        return min(
            (_recall(index, pool, queries, exact[name], probes, depth), f"{len(queries):,} {name}")
            for name, queries in sampled.items()
        )

    probes, depth = 1, _RESCORED[codes]
    recall, asked = worst(probes, depth)
    while recall < RECALL:
        steps = [(min(2 * probes, index.nlist), depth)]
        if codes == "pq":
            steps.append((probes, min(2 * depth, _MOST_RESCORED)))
        steps = [step for step in steps if step != (probes, depth)]
        if not steps:
            break
        (recall, asked), (probes, depth) = max((worst(*step), step) for step in steps)
    return probes, depth, recall, asked


def _recall(index: Any, pool: Pool, queries: Floats, exact: list[Integers], probes: int, depth: int) -> float:
    """The share of the exact best rows that a search by way of the cells finds."""
    found = _probe(index, queries, depth, probes)
    ranked = [pool.rank(query, rows, _NEAREST, False).rows for query, rows in zip(queries, found, strict=True)]
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(ranked, exact, strict=True))
    return hits / sum(map(len, exact))


def _read_header(file: Path) -> Header | None:
    try:
        with file.open("rb") as opened:
            return _parse_header(opened.read(len(_MAGIC)), opened.readline(_LONGEST_HEADER))
    except OSError:
        return None


def _map(file: Path, header: Header) -> Any | None:
    """The FAISS index in a file, whose cells stay in the file, mapped; None if it is damaged."""
    faiss = _faiss()
    with file.open("rb") as opened:
        begin = len(opened.read(len(_MAGIC))) + len(opened.readline(_LONGEST_HEADER))
        found = 0
        while block := opened.read(_BLOCK):
            found = zlib.crc32(block, found)
    if found != header.payload:
        return None
    reader = faiss.FileIOReader(str(file))
    skipped = np.empty(begin, np.uint8)
    reader(faiss.swig_ptr(skipped), 1, begin)
    return faiss.read_index(reader, faiss.IO_FLAG_MMAP)


def _parse_header(magic: bytes, line: bytes) -> Header | None:
    try:
        header = Header(**json.loads(line))
        return header if magic == _MAGIC and header.format == _FORMAT else None
    except (ValueError, TypeError):
        return None
