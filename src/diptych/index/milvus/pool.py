"""The entries of an index in Milvus that pass some filters, searched by Milvus.

Milvus selects the candidates; they are scored again with their own vectors, always summed in the same order, so that
equal entries have equal scores and an answer is the same as from a file, wherever the search was exact.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError
from diptych.index.entries import Kind, Method
from diptych.index.exact import SAMPLE, RankedRows
from diptych.index.milvus.client import MOST
from diptych.index.milvus.rows import vectors_of
from diptych.index.milvus.schema import search_parameters

if TYPE_CHECKING:
    from diptych.index.milvus.store import MilvusStore

_MARGIN = 16  # more candidates than asked for: their order may change when they are scored again


class MilvusPool:
    """Entries of one kind that meet a condition; the rows are their ids."""

    def __init__(self, store: MilvusStore, kind: Kind, where: str) -> None:
        self._store, self._kind, self._where = store, kind, where
        self._count = store.count(kind, where)

    @property
    def method(self) -> Method:
        """Exact with an index of the type FLAT."""
        return "exact" if self._store.index_type == "FLAT" else "approximate"

    @property
    def reachable(self) -> int:
        """Milvus returns at most 16,384 rows."""
        return min(self._count, MOST)

    @cached_property
    def sampled(self) -> Floats:
        """The vectors of some of the entries."""
        rows = self._store.client.query(
            self._store.collection, self._where, ("vector",), self._kind, level=self._store.level, limit=SAMPLE
        )
        return vectors_of(rows, self._store.spec.size)

    def __len__(self) -> int:
        return self._count

    def ids_of(self, rows: Integers) -> Integers:
        """The rows are the ids."""
        return rows

    def vectors_of(self, rows: Integers) -> Floats:
        """The vectors of some rows: (rows, size)."""
        return vectors_of(self._store.rows(rows), self._store.spec.size)

    def top(self, queries: Floats, k: int, cosine: bool = False) -> list[RankedRows]:
        """The k best entries of each query, (queries, size), by inner product."""
        if cosine and self._store.meta("unit") is False:
            raise DataError(
                f"{self._store.address}: the vectors of this model do not have length one, which Milvus needs here; "
                "to search by a picture, use an index in an SQLite file"
            )
        limit = min(k + _MARGIN, self.reachable)
        if not limit or not len(queries):
            return [RankedRows(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in queries]
        found = self._store.read(lambda: self._search(queries, limit))
        return [self._rank(query, ids, k, cosine) for query, ids in zip(queries, found, strict=True)]

    def _search(self, queries: Floats, limit: int) -> list[Integers]:
        store = self._store
        found = store.client.call(
            "search",
            store.collection,
            data=queries.astype(np.float32).tolist(),
            anns_field="vector",
            limit=limit,
            filter=self._where,
            output_fields=["id"],
            partition_names=[self._kind],
            search_params=search_parameters(store.index_type, limit),
            consistency_level=store.level,
        )
        return [np.array([hit["id"] for hit in hits], np.int64) for hits in found]

    def _rank(self, query: Floats, ids: Integers, k: int, cosine: bool) -> RankedRows:
        vectors = self.vectors_of(ids)
        scores: Any = np.einsum("ij,j->i", vectors, query)
        if cosine:
            lengths = np.linalg.norm(vectors, axis=1)
            scores = scores / np.where(lengths > 0, lengths, 1)
        order = np.lexsort((ids, -scores))[:k]
        return RankedRows(ids[order], scores[order].astype(np.float32))
