"""The cost of a storage type: how many of the ten nearest neighbours are lost when vectors are stored in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.exact import Pool
from diptych.index.vectors import STORAGES, Storage, decode, encode

NEAREST = 10
QUERIES = 1000  # at most
ENTRIES = 20_000  # at most


def measure(vectors: Floats) -> dict[str, Any]:
    """The recall of each storage type against float32: the share of each entry's ten nearest neighbours that remain.

    Vectors are (entries, size). Large indexes are sampled; `sample` is the number of entries used as queries.
    """
    random = np.random.default_rng(0)
    if len(vectors) > ENTRIES:
        vectors = vectors[np.sort(random.choice(len(vectors), ENTRIES, replace=False))]
    queries = np.arange(len(vectors))
    if len(queries) > QUERIES:
        queries = np.sort(random.choice(len(vectors), QUERIES, replace=False))
    exact = _nearest(vectors, queries)
    found: dict[str, Any] = {
        storage: {"recall@10": _overlap(exact, _nearest(_stored(vectors, storage), queries))} for storage in STORAGES
    }
    return {**found, "sample": len(queries)}


def _stored(vectors: Floats, storage: Storage) -> Floats:
    return decode(encode(vectors, storage), storage, vectors.shape[1])


def _nearest(vectors: Floats, queries: Integers) -> list[set[int]]:
    """The nearest neighbours of each query entry by cosine, without the entry itself."""
    pool = Pool(np.arange(len(vectors)), vectors)
    found = pool.top(vectors[queries], NEAREST + 1, cosine=True)
    others = [[row for row in top.rows.tolist() if row != query] for top, query in zip(found, queries, strict=True)]
    return [set(rows[:NEAREST]) for rows in others]


def _overlap(exact: list[set[int]], found: list[set[int]]) -> float:
    wanted = sum(map(len, exact))
    return sum(len(a & b) for a, b in zip(exact, found, strict=True)) / wanted if wanted else 1.0
