"""Compare exact search of 200,000 vectors of size 512 with the bare product.

A single query is compared with a matrix-vector product and `argpartition` for the ten best. A batch of 64 queries is
compared with the bare matrix product alone, which selects nothing; the product with `argpartition` is reported as well.
Diptych does all that a search does: it also scores the sample that decides whether anything stands out, and scores the
candidates again row by row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.index.exact import Pool
from diptych.machine import available_cores
from harness import arguments, finish, interleaved

ENTRIES, SIZE, BATCH, K = 200_000, 512, 64, 10
DEPTH = 2 * K + 16  # candidates of a search for ten hits; some may be near-duplicates
TARGET, BATCH_TARGET = 1.3, 0.8

Values = NDArray[np.float32]


def unit(count: int, random: np.random.Generator) -> Values:
    """Vectors of length one."""
    vectors = random.standard_normal((count, SIZE), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def ours(pool: Pool, queries: Values) -> list[NDArray[np.int64]]:
    """The best rows of each query."""
    return [found.rows for found in pool.top(queries, DEPTH)]


def bare_top(vectors: Values, queries: Values, out: Values) -> NDArray[np.int64]:
    """The ten best of each query, by one product and a partition."""
    scores = np.matmul(queries, vectors.T, out=out)
    return np.argpartition(scores, ENTRIES - K, axis=1)[:, -K:]


def bare_single(vectors: Values, query: Values) -> NDArray[np.int64]:
    """The ten best of one query."""
    return np.argpartition(vectors @ query, ENTRIES - K)[-K:]


def main() -> None:
    """Check that both find the same, then compare the times."""
    options = arguments(__doc__)
    random = np.random.default_rng(0)
    vectors, queries = unit(ENTRIES, random), unit(BATCH, random)
    pool, out = Pool(np.arange(ENTRIES), vectors), np.empty((BATCH, ENTRIES), np.float32)
    found, wanted = ours(pool, queries), bare_top(vectors, queries, out)
    agree = np.mean([len(np.intersect1d(a[:K], b)) / K for a, b in zip(found, wanted, strict=True)])
    rounds = 5 if options.quick else 20
    one = interleaved(
        {"ours": lambda: ours(pool, queries[:1]), "bare": lambda: bare_single(vectors, queries[0])}, rounds
    )
    many = interleaved(
        {
            "ours": lambda: ours(pool, queries),
            "product": lambda: np.matmul(queries, vectors.T, out=out),
            "product_and_top": lambda: bare_top(vectors, queries, out),
        },
        rounds,
    )
    ratio, rate = one["ours"].wall / one["bare"].wall, many["product"].wall / many["ours"].wall
    finish(
        "search",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET and rate >= BATCH_TARGET and bool(agree > 0.999),
        batch_rate=round(rate, 3),
        batch_target=BATCH_TARGET,
        batch_rate_against_product_and_top=round(many["product_and_top"].wall / many["ours"].wall, 3),
        agreement=round(float(agree), 4),
        milliseconds_one={name: round(1000 * timing.wall, 2) for name, timing in one.items()},
        milliseconds_batch={name: round(1000 * timing.wall, 1) for name, timing in many.items()},
        cpu_ratio_one=round(one["ours"].cpu / one["bare"].cpu, 3),
        cpu_rate_batch=round(many["product"].cpu / many["ours"].cpu, 3),
        shape=[ENTRIES, SIZE],
        batch=BATCH,
        threads=available_cores(),
    )


if __name__ == "__main__":
    main()
