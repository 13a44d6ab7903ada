"""Exact search: one product in blocks, of which only what can be among the best is looked at again.

A fixed sample of the entries is scored first. Its k-th best score is one that the k-th best of all reaches, so that of
each later block only the few scores above it are kept. Those are scored again, each row by itself and in the same
order of sums: equal entries have equal scores, wherever they stand and however many queries were asked with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.index.relevance import Reference, reference

BLOCK = 8192  # entries a product of several queries: enough for a good rate, and the scores stay in the cache
SAMPLE = 4096  # entries that stand for all
NARROW = 8  # a filter that lets less than one in so many through has its vectors gathered
_SLACK = 1e-5  # of the largest product: what sums in another order may differ by
_TIED = 1024  # entries with almost the k-th best score that are looked at


@dataclass(frozen=True)
class Found:
    """The best rows of one query with their scores, best first, equal ones in the order of the rows."""

    rows: Integers
    scores: Floats


class Pool:
    """Entries that a query may find: their ids, ascending, and vectors, (entries, size).

    `chosen` are the rows that a filter lets through, where the vectors are those of more entries. Answers are rows
    of `vectors`.
    """

    def __init__(self, ids: Integers, vectors: Floats, chosen: Integers | None = None) -> None:
        self.ids = ids
        self.vectors = vectors
        self.chosen = chosen

    def narrowed(self, ids: Integers) -> Pool:
        """The pool of only these of its entries."""
        rows = np.flatnonzero(np.isin(self.ids, ids, assume_unique=True))
        if len(rows) * NARROW < len(self.ids):
            return Pool(self.ids[rows], self.vectors[rows])
        return self if len(rows) == len(self.ids) else Pool(self.ids, self.vectors, rows)

    def __len__(self) -> int:
        return len(self.ids) if self.chosen is None else len(self.chosen)

    @cached_property
    def lengths(self) -> Floats:
        """The length of each vector, one where it is zero."""
        squares = np.einsum("ij,ij->i", self.vectors, self.vectors)
        return np.sqrt(np.where(squares > 0, squares, 1), dtype=np.float32)

    @cached_property
    def unit(self) -> bool:
        """Whether every vector has length one, so that products are cosines."""
        return bool(np.all(np.abs(self.lengths - 1) < 1e-5))

    @cached_property
    def nearly_unit(self) -> bool:
        """Whether every vector has about length one, as rounding leaves it: good enough to draw up a list."""
        return bool(np.all(np.abs(self.lengths - 1) < 1e-2))

    @cached_property
    def sample(self) -> Integers:
        """Some rows in no order, all of them if there are not many."""
        order = np.random.default_rng(len(self)).permutation(len(self))[:SAMPLE]
        return order if self.chosen is None else self.chosen[order]

    @cached_property
    def sampled(self) -> Floats:
        """The vectors of the sample."""
        return self.vectors[self.sample]

    @cached_property
    def reference(self) -> Reference | None:
        """How the entries score each other."""
        return reference(self.sampled)

    @cached_property
    def reference_of_cosines(self) -> Reference | None:
        """How the entries' directions score each other."""
        return self.reference if self.unit else reference(self.sampled / self.lengths[self.sample, None])

    @cached_property
    def _largest(self) -> float:
        return float(self.lengths.max(initial=1.0))

    def sample_scores(self, queries: Floats, cosine: bool) -> Floats:
        """Each query's scores with the sample: (queries, sample)."""
        scores = queries @ self.sampled.T
        return scores / self.lengths[self.sample] if cosine and not self.unit else scores

    def score(self, query: Floats, rows: Integers, cosine: bool) -> Floats:
        """A query's scores with some rows, each summed by itself: equal entries have equal scores."""
        scores: Floats = np.einsum("ij,j->i", self.vectors[rows], query)
        return scores / self.lengths[rows] if cosine and not self.unit else scores

    def ranked(self, query: Floats, rows: Integers, k: int, cosine: bool) -> Found:
        """The k best of some rows."""
        scores = self.score(query, rows, cosine)
        order = np.lexsort((rows, -scores))[:k]
        return Found(rows[order], scores[order])

    def top(self, queries: Floats, k: int, cosine: bool = False, sample_scores: Floats | None = None) -> list[Found]:
        """The k best entries of each query, (queries, size), by inner product or by its quotient by their length.

        `sample_scores` are the queries' own with the sample, where they are known already.
        """
        k = min(k, len(self))
        if not k or not len(queries):
            return [Found(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in queries]
        scores = self.sample_scores(queries, cosine) if sample_scores is None else sample_scores
        slack = _SLACK * np.linalg.norm(queries, axis=1) * (1 if cosine else self._largest)
        least = _least(scores, k) - slack  # (queries,)
        blocks = self._above(queries, least, cosine, k, slack)
        return [
            self.ranked(query, _promising(*found, k, float(own)), k, cosine)
            for query, found, own in zip(queries, blocks, slack, strict=True)
        ]

    def _above(
        self, queries: Floats, least: Floats, cosine: bool, k: int, slack: Floats
    ) -> list[tuple[Integers, Floats]]:
        """The rows that may be among the k best, ascending, and their scores, for each query; all score `least`."""
        scales = None if not cosine or self.unit else self.lengths
        if len(queries) == 1:
            scores = self.vectors @ queries[0]
            if scales is not None:
                scores /= scales
            rows = self._let_through(np.flatnonzero(scores >= least[0]))
            return [(rows, scores[rows])]
        asked, kept, products = [], [], []
        # The same memory for every block: fresh pages would cost as much as the comparison.
        width = min(BLOCK, len(self.vectors))
        scored, enough = np.empty(len(queries) * width, np.float32), np.empty(len(queries) * width, bool)
        for start in range(0, len(self.vectors), BLOCK):
            block = self.vectors[start : start + BLOCK]
            shape = len(queries), len(block)
            scores = np.matmul(queries, block.T, out=scored[: len(queries) * len(block)].reshape(shape))
            if scales is not None:
                scores /= scales[start : start + BLOCK]
            flat = np.flatnonzero(np.greater_equal(scores, least[:, None], out=enough[: scores.size].reshape(shape)))
            who, where = np.divmod(flat, len(block))
            if self.chosen is not None:
                through = self._mask[where + start]
                flat, who, where = flat[through], who[through], where[through]
            asked.append(who)
            kept.append(where + start)
            products.append(scores.ravel()[flat])
            if not start:  # the best of a block say more than those of the sample: far fewer of the next ones are kept
                least = np.maximum(least, _least_of(who, products[0], len(queries), k) - slack)
        return _by_query(len(queries), np.concatenate(asked), np.concatenate(kept), np.concatenate(products))

    def _let_through(self, rows: Integers) -> Integers:
        return rows if self.chosen is None else rows[self._mask[rows]]

    @cached_property
    def _mask(self) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.ids), bool)
        mask[self.chosen] = True
        return mask


def _least(scores: Floats, k: int) -> Floats:
    """A score that the k-th best of all reaches: the k-th best of the sample, if it has so many."""
    if k > scores.shape[1]:
        return np.full(len(scores), -np.inf, np.float32)
    least: Floats = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k]
    return least


def _least_of(asked: Integers, scores: Floats, queries: int, k: int) -> Floats:
    """The k-th best of each query's scores, which stand query by query; minus infinity where it has fewer."""
    edges = np.searchsorted(asked, np.arange(queries + 1)).tolist()
    parts = (scores[begin:end] for begin, end in pairwise(edges))
    return np.array([np.partition(own, -k)[-k] if len(own) >= k else -np.inf for own in parts], np.float32)


def _by_query(queries: int, asked: Integers, rows: Integers, scores: Floats) -> list[tuple[Integers, Floats]]:
    order = np.argsort(asked, kind="stable")
    ends = np.cumsum(np.bincount(asked, minlength=queries))[:-1]
    return list(zip(np.split(rows[order], ends), np.split(scores[order], ends), strict=True))


def _promising(rows: Integers, scores: Floats, k: int, slack: float) -> Integers:
    """Rows, ascending, that may be among the k best when their sums are taken in another order."""
    if len(rows) <= k:
        return rows
    edge = np.partition(scores, len(scores) - k)[len(scores) - k]
    sure = scores > edge + slack
    near = np.flatnonzero(~sure & (scores >= edge - slack))
    if len(near) > k + _TIED:  # one long vector among short ones makes the slack large: take the best, ties by row
        near = np.sort(near[np.lexsort((near, -scores[near]))[: k + _TIED]])
    return np.concatenate([rows[sure], rows[near]])
