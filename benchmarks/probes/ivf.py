"""Measure what the FAISS cache of a large index costs and how much faster search becomes, on clustered vectors.

python benchmarks/probes/ivf.py [--entries 250000] [--size 512]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from diptych.index import ivf
from diptych.index.exact import Pool, RankedRows

CLUSTERS, QUERIES, K = 2000, 50, 10

Vectors = NDArray[np.float32]


def clustered(entries: int, size: int, random: np.random.Generator) -> Vectors:
    """Unit vectors around random centres."""
    centres = random.standard_normal((CLUSTERS, size), dtype=np.float32)
    vectors = random.standard_normal((entries, size), dtype=np.float32)
    vectors += 0.7 * centres[random.integers(0, CLUSTERS, entries)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def milliseconds(ask: Callable[[Vectors], list[RankedRows]], queries: Vectors) -> float:
    """The median time of one query."""
    took = []
    for query in queries:
        started = time.perf_counter()
        ask(query[None])
        took.append(time.perf_counter() - started)
    return 1000 * float(np.median(took))


def main() -> None:
    """Build the cache, and compare it with exact search for the same queries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=250_000)
    parser.add_argument("--size", type=int, default=512)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    vectors = clustered(options.entries + QUERIES, options.size, random)
    vectors, queries = vectors[QUERIES:], vectors[:QUERIES]  # from the same clusters, but not among the entries
    pool = Pool(np.arange(1, len(vectors) + 1), vectors)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.ivf"
        started = time.perf_counter()
        cache = ivf.build(file, pool, np.empty((0, options.size), np.float32), "probe", 1)
        took, megabytes = time.perf_counter() - started, file.stat().st_size / 2**20

        def with_cache(asked: Vectors) -> list[RankedRows]:
            candidates = cache.candidates(asked, 2 * K, None)
            return [pool.rank(query, rows, K, False) for query, rows in zip(asked, candidates, strict=True)]

        def exactly(asked: Vectors) -> list[RankedRows]:
            return pool.top(asked, K)

        both = zip(with_cache(queries), exactly(queries), strict=True)
        recall = np.mean([len(np.intersect1d(a.rows, b.rows)) / K for a, b in both])
        console = Console()
        made = cache.header
        console.print(f"built in {took:.1f} s, {megabytes:.0f} MB: {made.cells} cells, {made.probes} probed")
        console.print(f"recall@{K} {made.recall:.3f} on its own sample, {recall:.3f} on {QUERIES} other queries")
        console.print(
            f"ms per query: {milliseconds(with_cache, queries):.2f}, exact search {milliseconds(exactly, queries):.1f}"
        )


if __name__ == "__main__":
    main()
