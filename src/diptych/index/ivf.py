"""A FAISS index as a cache beside the store: entries in cells, of which a query looks at a few (extra `[faiss]`).

It only draws up candidates, which are scored exactly with the store's own vectors. The file says which entries it was
made of and what share of the exact ten best it finds; one that is stale or damaged is made anew, and can be deleted at
any time. Inside, vectors take a byte a number.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.errors import DiptychError
from diptych.files import atomic_write
from diptych.index.entries import Kind
from diptych.index.exact import Pool
from diptych.machine import available_cores

if TYPE_CHECKING:
    from diptych.index.sqlite.store import Store

ABOVE = 200_000  # entries; of fewer an exact search is quick enough
NEEDED = "needs faiss: pip install 'diptych[faiss]'"
RECALL = 0.95  # that probing more cells is tried for

_FORMAT = 1
_MAGIC = b"diptych ivf\n"
_NEAREST = 10
_ASKING = 256
_A_CELL = 64  # entries that a cell's middle is found with
_LONGEST_HEADER = 1 << 16


@dataclass(frozen=True)
class Made:
    """What an IVF was made of and what it finds: the file's header.

    `recall` is the share of the exact ten best, with `asked` queries of the kind that found the least.
    """

    format: int
    identity: str
    generation: int
    entries: int
    checksum: int
    cells: int
    probes: int
    recall: float
    asked: str
    payload: int


@dataclass(frozen=True)
class Ivf:
    """A FAISS index over the vectors of a pool, and what is known of it."""

    made: Made
    index: Any

    def candidates(self, queries: Floats, count: int, chosen: Integers | None = None) -> list[Integers]:
        """At most so many rows of the pool for each query, (queries, size), of these alone where some are chosen."""
        return _probe(self.index, queries, count, self.made.probes, chosen)


def available() -> bool:
    """Whether FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None


def cache_file(index: Path, kind: Kind) -> Path:
    """Where the cache of an index lies."""
    return index.with_name(f"{index.name}.{kind}.ivf")


def checksum(pool: Pool) -> int:
    """What tells the entries of a pool from others."""
    return zlib.crc32(pool.vectors.data, zlib.crc32(pool.ids.data)) if len(pool.ids) else 0


def build(file: Path, pool: Pool, other: Floats, identity: str, generation: int) -> Ivf:
    """Make the cache of a pool anew and keep it in a file; `other` are vectors of the other kind, which ask as well."""
    faiss = _faiss()
    size, cells = pool.vectors.shape[1], _cells(len(pool.ids))
    quantizer = faiss.IndexFlatIP(size)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, size, cells, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, _A_CELL
    some = np.random.default_rng(0).permutation(len(pool.ids))[: cells * _A_CELL]
    index.train(pool.vectors[np.sort(some)])
    index.add(pool.vectors)
    probes, recall, asked = _choose_probes(index, pool, other)
    payload = faiss.serialize_index(index)
    made = Made(
        _FORMAT, identity, generation, len(pool.ids), checksum(pool), cells, probes, recall, asked,
        zlib.crc32(payload.data),
    )  # fmt: skip
    with atomic_write(file) as temporary, temporary.open("wb") as out:
        out.write(_MAGIC + json.dumps(asdict(made)).encode() + b"\n")
        out.write(payload.data)
    return Ivf(made, index)


def load(file: Path, pool: Pool, identity: str, generation: int) -> Ivf | None:
    """The cache in a file if it is whole and of these entries, else None."""
    found = _read(file)
    if found is None or found[0].identity != identity or found[0].entries != len(pool.ids):
        return None
    made, payload = found
    # a change that left the entries alone, such as a note, leaves the cache as good as it was
    if made.generation != generation and made.checksum != checksum(pool):
        return None
    if zlib.crc32(payload) != made.payload:
        return None
    try:
        index = _faiss().deserialize_index(np.frombuffer(payload, np.uint8))
    except RuntimeError:  # of another version of FAISS
        return None
    return Ivf(made, index)


def describe(store: Store) -> list[str]:
    """A line for each cache that lies beside an index: its recall against exact search, and whether it is stale."""
    lines = []
    for kind in get_args(Kind):
        file = cache_file(Path(store.path), kind)
        if not file.exists():
            continue
        made = _header(file)
        if made is None:
            lines.append(f"{file.name}: damaged; the next search makes it anew")
            continue
        stale = made.identity != store.spec.identity or made.generation != store.generation
        when = "; older than the index, looked at again by the next search" if stale else ""
        lines.append(
            f"{file.name}: recall@10 {made.recall:.3f} against exact search (asked by {made.asked}), "
            f"{made.probes} of {made.cells:,} cells probed, {made.entries:,} entries{when}"
        )
    return lines


def _faiss() -> Any:
    try:
        faiss = importlib.import_module("faiss")
    except ImportError:
        raise DiptychError(f"an IVF {NEEDED}") from None
    faiss.omp_set_num_threads(available_cores())
    return faiss


def _cells(entries: int) -> int:
    return max(1, min(round(2 * math.sqrt(entries)), entries // 32))


def _probe(index: Any, queries: Floats, count: int, probes: int, chosen: Integers | None = None) -> list[Integers]:
    faiss = _faiss()
    parameters = faiss.SearchParametersIVF(nprobe=probes)
    if chosen is not None:
        parameters = faiss.SearchParametersIVF(nprobe=probes, sel=faiss.IDSelectorBatch(chosen))
    _, rows = index.search(np.ascontiguousarray(queries), min(count, index.ntotal), params=parameters)
    return [np.sort(own[own >= 0]) for own in rows]


def _choose_probes(index: Any, pool: Pool, other: Floats) -> tuple[int, float, str]:
    """As few cells as reach the wanted recall, twice as many each time, with the recall and who asked."""
    random = np.random.default_rng(1)
    asking = {"entries of its own kind": pool.vectors, "entries of the other kind": other}
    drawn = {
        who: vectors[np.sort(random.permutation(len(vectors))[:_ASKING])]
        for who, vectors in asking.items()
        if len(vectors)
    }
    exact = {who: [found.rows for found in pool.top(queries, _NEAREST)] for who, queries in drawn.items()}
    probes = 1
    while True:
        recalls = {who: _recall(index, pool, queries, exact[who], probes) for who, queries in drawn.items()}
        worst = min(recalls, key=recalls.__getitem__)
        if recalls[worst] >= RECALL or probes >= index.nlist:
            return probes, recalls[worst], f"{len(drawn[worst]):,} {worst}"
        probes = min(2 * probes, index.nlist)


def _recall(index: Any, pool: Pool, queries: Floats, exact: list[Integers], probes: int) -> float:
    """The share of the exact best that is found by way of the candidates of a usual search."""
    found = _probe(index, queries, 4 * _NEAREST, probes)
    ranked = [pool.ranked(query, rows, _NEAREST, False).rows for query, rows in zip(queries, found, strict=True)]
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(ranked, exact, strict=True))
    return hits / sum(map(len, exact))


def _header(file: Path) -> Made | None:
    try:
        with file.open("rb") as opened:
            return _made(opened.read(len(_MAGIC)), opened.readline(_LONGEST_HEADER))
    except OSError:
        return None


def _read(file: Path) -> tuple[Made, bytes] | None:
    try:
        with file.open("rb") as opened:
            made = _made(opened.read(len(_MAGIC)), opened.readline(_LONGEST_HEADER))
            return None if made is None else (made, opened.read())
    except OSError:
        return None


def _made(magic: bytes, line: bytes) -> Made | None:
    try:
        made = Made(**json.loads(line))
        return made if magic == _MAGIC and made.format == _FORMAT else None
    except (ValueError, TypeError):
        return None
