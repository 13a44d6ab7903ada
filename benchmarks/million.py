"""Search a million vectors of size 512, held in float16 in a mapped file, and measure time, memory and recall.

`ratio` is the time of an exact search with one query, all included, against the bare product of the same storage: the
same conversion to float32 and the same product, without selecting anything. A plain NumPy loop over `astype(float32)`
and the product of float32 vectors in memory are reported as well. Memory is that of a fresh process after ten searches,
pages of the mapped file included, against the size of the float16 vectors. Then follow the times of one query at three
sizes, and the recall of the ten best against exact search, with queries from the same clusters that are not in the
index. With `--quick`, there are two smaller sizes and no product quantisation, and memory is counted without what
importing the modules takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.index.loaded import LoadedIndex
from diptych.index.packed import PackedVectors
from diptych.index.preselection import Codes, Preselection, Preselector
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.vectors import encode
from diptych.machine import available_cores
from harness import Timing, arguments, finish, interleaved

SIZE, CLUSTERS, QUERIES, K, BATCH = 512, 2000, 100, 10, 64
ROUNDS = 25  # of one query
DEPTH = 2 * K + 16  # candidates of a search for ten hits
TARGET, MEMORY_TARGET, RECALL_TARGET = 1.3, 1.3, 0.9
PROBE = Path(__file__).parent / "probes" / "mapped_memory.py"

Values = NDArray[np.float32]


def clustered(count: int, seed: int) -> Values:
    """Unit vectors around random centres, which are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, SIZE), dtype=np.float32)
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((count, SIZE), dtype=np.float32)
    vectors += 0.7 * centres[random.integers(0, CLUSTERS, count)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def make_index(file: Path, entries: int) -> None:
    """An index with one image per vector, stored in float16."""
    store = Store.create(file, IndexSpec("benchmark", "benchmark", SIZE, False, "float16", "nowhere", None, "0"))
    with store.database.transaction():
        for start in range(0, entries, 10_000):
            ids = range(start + 1, start + 1 + min(10_000, entries - start))
            encoded = encode(clustered(len(ids), 1 + start), "float16")
            store.database.each(
                "INSERT INTO contents(id, kind, hash, checksum, vector) VALUES(?, 'image', ?, 0, ?)",
                [(id, str(id).encode(), vector) for id, vector in zip(ids, encoded, strict=True)],
            )
            store.database.each(
                "INSERT INTO entries(id, kind, key, content) VALUES(?, 'image', ?, ?)",
                [(id, f"{id}.jpg", id) for id in ids],
            )
    store.close()


def memory(file: Path, queries: Path, codes: str) -> dict[str, float]:
    """What the probe prints, of a process of its own."""
    command = [sys.executable, str(PROBE), str(file), str(queries), codes]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def plain(codes: NDArray[np.generic], query: Values) -> NDArray[np.int64]:
    """The ten best as one would write it in NumPy, without converting everything at once."""
    blocks = [codes[start : start + 4096].astype(np.float32) @ query for start in range(0, len(codes), 4096)]
    return np.argpartition(np.concatenate(blocks), len(codes) - K)[-K:]


def milliseconds(ask: Callable[[Values], object], queries: Values) -> float:
    """The median time of one query."""
    took = []
    for query in queries:
        started = time.perf_counter()
        ask(query)
        took.append(time.perf_counter() - started)
    return round(1000 * float(np.median(took)), 2)


def at_size(file: Path, queries: Values, codes: tuple[Codes, ...]) -> dict[str, Any]:
    """Time of one query, and recall, exact and by way of codes."""
    store = Store.open(file)
    figures: dict[str, Any] = {}
    loaded = LoadedIndex(store, map_above=0)
    pool = loaded.in_memory("image")
    exact = [found.rows[:K] for found in pool.top(queries, DEPTH)]
    figures["exact"] = {"milliseconds": milliseconds(lambda query: pool.top(query[None], DEPTH), queries[:20])}
    for name in codes:
        preselection = Preselection(store, "benchmark", ivf="never", ivf_above=0, build=True, codes=name)
        loaded.preselectors.clear()
        started = time.perf_counter()
        selector = preselection.of(loaded, "image")
        assert selector is not None

        def search(query: Values, selector: Preselector = selector) -> NDArray[np.int64]:
            return pool.rank(query, selector.candidates(query[None], 2 * DEPTH)[0], DEPTH, False).rows

        made = time.perf_counter() - started
        found = [search(query)[:K] for query in queries]
        shared = [len(np.intersect1d(a, b)) for a, b in zip(found, exact, strict=True)]
        size = sum(each.stat().st_size for each in file.parent.glob(f"{file.name}.image.{name}"))
        figures[name] = {
            "milliseconds": milliseconds(search, queries[:50]),
            "recall@10": round(sum(shared) / (K * len(queries)), 4),
            "megabytes": round(size / 1e6, 1),
            "seconds_to_build": round(made, 1),
        }
        if name == "pq":
            header = selector.header  # type: ignore[attr-defined]
            figures[name] |= {"probes": header.probes, "cells": header.cells, "scored": header.depth}
    store.close()
    return figures


def exact_times(file: Path, queries: Values) -> tuple[dict[str, Timing], dict[str, Timing]]:
    """Times of one query and of a batch, ours and bare; for one query also plain NumPy, and float32 in memory."""
    store = Store.open(file)
    pool = LoadedIndex(store, map_above=0).in_memory("image")
    store.close()
    vectors = pool.vectors
    assert isinstance(vectors, PackedVectors)
    in_memory = vectors[:]
    one = interleaved(
        {
            "ours": lambda: pool.top(queries[:1], DEPTH),
            "bare": lambda: [None for _ in vectors.products(queries[:1])],
        },
        ROUNDS,
    )
    # By themselves: threads of BLAS spin for a while after a product, which would count as time of the next one.
    others = interleaved(
        {
            "numpy": lambda: plain(vectors.codes, queries[0]),
            "float32_in_memory": lambda: in_memory @ queries[0],
        },
        3,
    )
    many = interleaved(
        {
            "ours": lambda: pool.top(queries[:BATCH], DEPTH),
            "bare": lambda: [None for _ in vectors.products(queries[:BATCH])],
        },
        5,
    )
    return one | others, many


def main() -> None:
    """Make the indexes, and measure the largest one and then all of them."""
    options = arguments(__doc__)
    sizes = (10_000, 100_000) if options.quick else (10_000, 100_000, 1_000_000)
    compressed: tuple[Codes, ...] = ("int8",) if options.quick else ("int8", "pq")
    queries = clustered(QUERIES, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {size: folder / f"{size}.diptych" for size in sizes}
        for size, file in files.items():
            make_index(file, size)
            print(f"made an index of {size:,} entries", file=sys.stderr, flush=True)
        largest = files[sizes[-1]]
        np.save(folder / "queries.npy", queries[:10])
        written = memory(largest, folder / "queries.npy", "auto")  # the first process writes the file
        mapped = memory(largest, folder / "queries.npy", "auto")
        one, many = exact_times(largest, queries)
        coded = {size: at_size(file, queries, compressed) for size, file in files.items()}
        small = {codes: memory(largest, folder / "queries.npy", codes) for codes in compressed}
    bytes_of_vectors = 2 * SIZE * sizes[-1]

    def share(found: dict[str, float], what: str = "VmRSS") -> float:
        return round((found[what] - (found["before"] if options.quick else 0)) / bytes_of_vectors, 3)

    ratio, memory_ratio = one["ours"].wall / one["bare"].wall, share(mapped)
    recalls = [figures[name]["recall@10"] for figures in coded.values() for name in compressed]
    finish(
        "million",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET and memory_ratio <= MEMORY_TARGET and min(recalls) >= RECALL_TARGET,
        cpu_ratio=round(one["ours"].cpu / one["bare"].cpu, 3),
        memory=memory_ratio,
        memory_target=MEMORY_TARGET,
        memory_while_writing=share(written, "VmHWM"),
        memory_by_codes={name: share(found) for name, found in small.items()},
        seconds_to_open={"written": round(written["opened"], 2), "mapped": round(mapped["opened"], 3)},
        batch_ratio=round(many["ours"].wall / many["bare"].wall, 3),
        batch_cpu_ratio=round(many["ours"].cpu / many["bare"].cpu, 3),
        milliseconds_one={name: round(1000 * timing.wall, 1) for name, timing in one.items()},
        cpu_milliseconds_one={name: round(1000 * timing.cpu, 1) for name, timing in one.items()},
        milliseconds_batch={name: round(1000 * timing.wall, 1) for name, timing in many.items()},
        by_size=coded,
        shape=[sizes[-1], SIZE],
        batch=BATCH,
        threads=available_cores(),
    )


if __name__ == "__main__":
    main()
