"""What a storage type costs: how many of the ten nearest entries are no longer found when vectors are stored in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.exact import Pool
from diptych.index.sqlite.vectors import STORAGES, Storage, decode, encode

NEAREST = 10
ASKING = 1000
ENTRIES = 20_000


def measure(vectors: Floats) -> dict[str, Any]:
    """The recall of each storage type against float32: of each entry's ten nearest others, the share that stays.

    Vectors are (entries, size); of very many a sample is taken, and `sample` says how many entries asked.
    """
    random = np.random.default_rng(0)
    if len(vectors) > ENTRIES:
        vectors = vectors[np.sort(random.choice(len(vectors), ENTRIES, replace=False))]
    asking = np.arange(len(vectors))
    if len(asking) > ASKING:
        asking = np.sort(random.choice(len(vectors), ASKING, replace=False))
    exact = _nearest(vectors, asking)
    found: dict[str, Any] = {
        storage: {"recall@10": _overlap(exact, _nearest(_stored(vectors, storage), asking))} for storage in STORAGES
    }
    return {**found, "sample": len(asking)}


def _stored(vectors: Floats, storage: Storage) -> Floats:
    return decode(encode(vectors, storage), storage, vectors.shape[1])


def _nearest(vectors: Floats, asking: Integers) -> list[set[int]]:
    """The entries that are nearest to each asking one by their cosine, itself left out."""
    pool = Pool(np.arange(len(vectors)), vectors)
    found = pool.top(vectors[asking], NEAREST + 1, cosine=True)
    own = [[row for row in each.rows.tolist() if row != asked] for each, asked in zip(found, asking, strict=True)]
    return [set(rows[:NEAREST]) for rows in own]


def _overlap(exact: list[set[int]], found: list[set[int]]) -> float:
    wanted = sum(map(len, exact))
    return sum(len(a & b) for a, b in zip(exact, found, strict=True)) / wanted if wanted else 1.0
