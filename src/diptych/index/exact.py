"""Exact search: one blocked matrix product, after which only rows that can be among the k best are scored again.

A fixed sample of the entries is scored first. Its k-th best score is a lower bound of the k-th best score of all
entries, so that of each block only the few scores above it are kept. Those rows are scored again one by one, always
summed in the same order: equal entries have equal scores, whatever their position and the number of queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers

BLOCK = 8192  # entries per product of several queries: large enough to be fast, and the scores fit into the cache
SAMPLE = 4096  # entries in the sample
NARROW = 8  # a filter that lets fewer than one entry in 8 through has its vectors copied
_SLACK = 1e-5  # relative to the largest product: how much sums in another order may differ
_TIED = 1024  # how many entries with almost the k-th best score are scored again


@dataclass(frozen=True)
class RankedRows:
    """The best rows of one query and their scores, best first; ties are in the order of the rows."""

    rows: Integers
    scores: Floats


class Pool:
    """Entries that can be found: their ids, ascending, and their vectors, (entries, size).

    `allowed` are the rows that pass a filter, if `vectors` holds further entries. Results are rows of `vectors`.
    """

    def __init__(self, ids: Integers, vectors: Floats, allowed: Integers | None = None) -> None:
        self.ids = ids
        self.vectors = vectors
        self.allowed = allowed

    def restricted(self, ids: Integers) -> Pool:
        """The pool with only these of its entries."""
        rows = np.flatnonzero(np.isin(self.ids, ids, assume_unique=True))
        if len(rows) * NARROW < len(self.ids):
            return Pool(self.ids[rows], self.vectors[rows])
        return self if len(rows) == len(self.ids) else Pool(self.ids, self.vectors, rows)

    def __len__(self) -> int:
        return len(self.ids) if self.allowed is None else len(self.allowed)

    @cached_property
    def norms(self) -> Floats:
        """The length of each vector, or one if it is zero."""
        squares = np.einsum("ij,ij->i", self.vectors, self.vectors)
        return np.sqrt(np.where(squares > 0, squares, 1), dtype=np.float32)

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
        if len(queries) == 1:
            scores = self.vectors @ queries[0]
            if scales is not None:
                scores /= scales
            rows = self._only_allowed(np.flatnonzero(scores >= least[0]))
            return [(rows, scores[rows])]
        query_parts, row_parts, score_parts = [], [], []
        # One buffer for all blocks: newly allocated pages would cost as much as the comparison.
        width = min(BLOCK, len(self.vectors))
        products, above = np.empty(len(queries) * width, np.float32), np.empty(len(queries) * width, bool)
        for start in range(0, len(self.vectors), BLOCK):
            block = self.vectors[start : start + BLOCK]
            shape = len(queries), len(block)
            scores = np.matmul(queries, block.T, out=products[: len(queries) * len(block)].reshape(shape))
            if scales is not None:
                scores /= scales[start : start + BLOCK]
            flat = np.flatnonzero(np.greater_equal(scores, least[:, None], out=above[: scores.size].reshape(shape)))
            query, row = np.divmod(flat, len(block))
            if self.allowed is not None:
                passing = self._mask[row + start]
                flat, query, row = flat[passing], query[passing], row[passing]
            query_parts.append(query)
            row_parts.append(row + start)
            score_parts.append(scores.ravel()[flat])
            if not start:  # the first block gives a tighter bound than the sample: far fewer of the next rows are kept
                least = np.maximum(least, _kth_best_by_query(query, score_parts[0], len(queries), k) - slack)
        return _by_query(
            len(queries), np.concatenate(query_parts), np.concatenate(row_parts), np.concatenate(score_parts)
        )

    def _only_allowed(self, rows: Integers) -> Integers:
        return rows if self.allowed is None else rows[self._mask[rows]]

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


def _kth_best_by_query(query: Integers, scores: Floats, queries: int, k: int) -> Floats:
    """The same for scores that are grouped by query, in ascending order of the queries."""
    edges = np.searchsorted(query, np.arange(queries + 1)).tolist()
    parts = (scores[begin:end] for begin, end in pairwise(edges))
    return np.array([np.partition(part, -k)[-k] if len(part) >= k else -np.inf for part in parts], np.float32)


def _by_query(queries: int, query: Integers, rows: Integers, scores: Floats) -> list[tuple[Integers, Floats]]:
    order = np.argsort(query, kind="stable")
    ends = np.cumsum(np.bincount(query, minlength=queries))[:-1]
    return list(zip(np.split(rows[order], ends), np.split(scores[order], ends), strict=True))


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
