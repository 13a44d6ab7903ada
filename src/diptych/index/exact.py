"""Exact search: one blocked matrix product, after which only rows that can be among the k best are scored again.

A fixed sample of the entries is scored first. Its k-th best score is a lower bound of the k-th best score of all
entries, so that of each block only the few scores above it are kept. Those rows are scored again one by one, always
summed in the same order: equal entries have equal scores, whatever their position and the number of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.index.packed import PackedVectors, Vectors, norms

BLOCK = 8192  # entries per product of several queries: large enough to be fast, and the scores fit into the cache
SAMPLE = 4096  # entries in the sample
NARROW = 8  # a filter that lets fewer than one entry in 8 through has its vectors copied, or read one by one if packed
_SLACK = 1e-5  # relative to the largest product: how much sums in another order may differ
_TIED = 1024  # how many entries with almost the k-th best score are scored again


@dataclass(frozen=True)
class RankedRows:
    """The best rows of one query and their scores, best first; ties are in the order of the rows."""

    rows: Integers
    scores: Floats


class Pool:
    """Entries that can be found: their ids, ascending, and their vectors, (entries, size).

    `allowed` are the rows that pass a filter, if `vectors` holds further entries. Results are rows of `vectors`, whose
    lengths are computed unless `norms` has them.
    """

    method: Literal["exact"] = "exact"

    def __init__(
        self, ids: Integers, vectors: Vectors, allowed: Integers | None = None, norms: Floats | None = None
    ) -> None:
        self.ids = ids
        self.vectors = vectors
        self.allowed = allowed
        self._norms = norms

    def restricted(self, ids: Integers) -> Pool:
        """The pool with only these of its entries."""
        rows = np.flatnonzero(np.isin(self.ids, ids, assume_unique=True))
        if len(rows) * NARROW < len(self.ids):
            chosen = self.vectors.take(rows) if isinstance(self.vectors, PackedVectors) else self.vectors[rows]
            return Pool(self.ids[rows], chosen, norms=self.norms[rows])
        return self if len(rows) == len(self.ids) else Pool(self.ids, self.vectors, rows, self.norms)

    def __len__(self) -> int:
        return len(self.ids) if self.allowed is None else len(self.allowed)

    @property
    def reachable(self) -> int:
        """All entries."""
        return len(self)

    def ids_of(self, rows: Integers) -> Integers:
        """The ids of the entries of some rows."""
        return self.ids[rows]

    def vectors_of(self, rows: Integers) -> Floats:
        """The vectors of some rows: (rows, size)."""
        return self.vectors[rows]

    @cached_property
    def norms(self) -> Floats:
        """The length of each vector, or one if it is zero."""
        return norms(self.vectors) if self._norms is None else self._norms

    @cached_property
    def is_unit(self) -> bool:
        """Whether every vector has length one, so that products are cosines."""
        return bool(np.all(np.abs(self.norms - 1) < 1e-5))

    @cached_property
    def is_nearly_unit(self) -> bool:
        """Whether every vector has length one up to rounding, which is enough to select candidates."""
        return bool(np.all(np.abs(self.norms - 1) < 1e-2))

    @cached_property
    def sample(self) -> Integers:
        """Some rows in random order; all of them if there are few."""
        order = np.random.default_rng(len(self)).permutation(len(self))[:SAMPLE]
        return order if self.allowed is None else self.allowed[order]

    @cached_property
    def sampled(self) -> Floats:
        """The vectors of the sample."""
        return self.vectors[self.sample]

    @cached_property
    def _largest(self) -> float:
        return float(self.norms.max(initial=1.0))

    def _sample_scores(self, queries: Floats, cosine: bool) -> Floats:
        """Each query's scores with the sample: (queries, sample)."""
        if len(queries) == 1:  # too little for threads of BLAS, which would wait for each other on a busy machine
            scores: Floats = np.einsum("ij,j->i", self.sampled, queries[0])[None]
        else:
            scores = queries @ self.sampled.T
        return scores / self.norms[self.sample] if cosine and not self.is_unit else scores

    def score(self, query: Floats, rows: Integers, cosine: bool) -> Floats:
        """A query's scores with some rows, each summed separately: equal entries have equal scores."""
        scores: Floats = np.einsum("ij,j->i", self.vectors[rows], query)
        return scores / self.norms[rows] if cosine and not self.is_unit else scores

    def rank(self, query: Floats, rows: Integers, k: int, cosine: bool) -> RankedRows:
        """The k best of some rows."""
        scores = self.score(query, rows, cosine)
        order = np.lexsort((rows, -scores))[:k]
        return RankedRows(rows[order], scores[order])

    def top(self, queries: Floats, k: int, cosine: bool = False) -> list[RankedRows]:
        """The k best entries of each query, (queries, size), by inner product.

        With `cosine`, products are divided by the lengths of the entries' vectors; queries should have length one.
        """
        k = min(k, len(self))
        if not k or not len(queries):
            return [RankedRows(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in queries]
        scores = self._sample_scores(queries, cosine)
        slack = _SLACK * np.linalg.norm(queries, axis=1) * (1 if cosine else self._largest)
        least = _kth_best(scores, k) - slack  # (queries,)
        blocks = self._above(queries, least, cosine, k, slack)
        return [
            self.rank(query, _promising(*found, k, float(tolerance)), k, cosine)
            for query, found, tolerance in zip(queries, blocks, slack, strict=True)
        ]

    def _above(
        self, queries: Floats, least: Floats, cosine: bool, k: int, slack: Floats
    ) -> list[tuple[Integers, Floats]]:
        """Per query the rows that score at least `least`, ascending, and their scores; the k best are among them."""
        scales = None if not cosine or self.is_unit else self.norms
        none = np.zeros(0, np.int64)
        found = [(none, np.zeros(0, np.float32)) for _ in queries]
        parts: list[tuple[Integers, Integers, Floats]] = []
        above = np.zeros(0, bool)  # one buffer for all blocks: newly allocated pages cost as much as the comparison
        tighten = BLOCK  # rows after which the scores so far give a tighter bound than the sample: fewer rows are kept
        for start, scores in self._products(queries):
            end = start + scores.shape[1]
            if scales is not None:
                np.divide(scores, scales[start:end], out=scores)
            above = above if above.size >= scores.size else np.empty(scores.size, bool)
            passes = above[: scores.size].reshape(scores.shape)
            flat = np.flatnonzero(np.greater_equal(scores, least[:, None], out=passes))
            query, row = np.divmod(flat, scores.shape[1])
            if self.allowed is not None:
                passing = self._mask[row + start]
                flat, query, row = flat[passing], query[passing], row[passing]
            parts.append((query, row + start, scores.ravel()[flat]))
            if end >= tighten or end == len(self.vectors):
                found = _by_query(found, parts)
                least = np.maximum(least, [_kth(own, k) for _, own in found] - slack).astype(np.float32)
                parts, tighten = [], 2 * end
        return found

    def _products(self, queries: Floats) -> Iterator[tuple[int, Floats]]:
        """The products with all vectors, block by block: the first row, and (queries, rows), which is used again."""
        vectors = self.vectors
        if isinstance(vectors, PackedVectors):
            yield from vectors.products(queries)
        elif len(queries) == 1:
            yield 0, (vectors @ queries[0])[None]
        else:
            products = np.empty(len(queries) * min(BLOCK, len(vectors)), np.float32)
            for start in range(0, len(vectors), BLOCK):
                block = vectors[start : start + BLOCK]
                shape = len(queries), len(block)
                yield start, np.matmul(queries, block.T, out=products[: len(queries) * len(block)].reshape(shape))

    @cached_property
    def _mask(self) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.ids), bool)
        mask[self.allowed] = True
        return mask


def _kth_best(scores: Floats, k: int) -> Floats:
    """The k-th best score per query, (queries,); minus infinity if there are fewer than k."""
    if k > scores.shape[1]:
        return np.full(len(scores), -np.inf, np.float32)
    best: Floats = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k]
    return best


def _kth(scores: Floats, k: int) -> float:
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else -np.inf


def _by_query(
    found: list[tuple[Integers, Floats]], parts: list[tuple[Integers, Integers, Floats]]
) -> list[tuple[Integers, Floats]]:
    """What was found before, with further parts, each of which has the queries, rows and scores of its hits."""
    query, rows, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(query, kind="stable")
    ends = np.cumsum(np.bincount(query, minlength=len(found)))[:-1]
    added = zip(np.split(rows[order], ends), np.split(scores[order], ends), strict=True)
    return [
        (np.concatenate([old_rows, new_rows]), np.concatenate([old_scores, new_scores]))
        for (old_rows, old_scores), (new_rows, new_scores) in zip(found, added, strict=True)
    ]


def _promising(rows: Integers, scores: Floats, k: int, slack: float) -> Integers:
    """Rows that may be among the k best when their products are summed in another order."""
    if len(rows) <= k:
        return rows
    edge = np.partition(scores, len(scores) - k)[len(scores) - k]
    sure = scores > edge + slack
    close = np.flatnonzero(~sure & (scores >= edge - slack))
    if len(close) > k + _TIED:  # one long vector among short ones makes the slack large: take the best, ties by row
        close = np.sort(close[np.lexsort((close, -scores[close]))[: k + _TIED]])
    return np.concatenate([rows[sure], rows[close]])
