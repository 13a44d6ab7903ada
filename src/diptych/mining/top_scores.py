"""The highest scores of many queries, kept while scores arrive in tiles.

A score and the number of its item form one integer key: a higher score has a higher key, and of two equal scores the
one with the smaller item number. So keys never tie. Each query has a buffer of keys; when it is full, only the best are
kept, and the lowest of them is the threshold that later scores must exceed. Of n scores in random order only about
h (1 + ln(n / h)) ever enter a buffer of h, so that little is done besides comparing each score once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers

EMPTY = np.iinfo(np.int64).min  # below the key of any score

_LOW = 2**32 - 1  # the lower half of a key
_SORTED_AT_ONCE = 4096


class TopScores:
    """The `size` highest scores of each query with their items, which are numbered below 2^32.

    The scores of a query must arrive in ascending order of their items: an equal score that comes later is not taken.
    A score of minus infinity is never taken.
    """

    def __init__(self, queries: int, size: int) -> None:
        self.size = size
        self._capacity = size + max(size, 32)
        self._keys = np.full((queries, self._capacity), EMPTY)
        self._used = np.zeros(queries, np.int64)
        self._threshold = np.full(queries, -np.inf, np.float32)  # what a score must exceed to be among the highest

    def offer(self, scores: Floats, queries: slice, items: slice) -> None:
        """Take the (queries, items) scores that are high enough; either axis may be contiguous in memory."""
        self._raise_thresholds(scores, queries)
        above = scores > self._threshold[queries, None]  # with the memory layout of the scores
        if above.flags.c_contiguous:
            flat = np.flatnonzero(above)
            query, item = np.divmod(flat, above.shape[1])
            high = scores.ravel().take(flat)
        else:
            flat = np.flatnonzero(above.T)
            item, query = np.divmod(flat, above.shape[0])
            by_query = np.argsort(query.astype(np.min_scalar_type(above.shape[0])), kind="stable")  # small: radix sort
            query, item, high = query[by_query], item[by_query], scores.T.ravel().take(flat[by_query])
        self._add(query + queries.start, item + items.start, high)

    def best(self) -> Integers:
        """The keys of the highest scores in descending order: (queries, size), padded with EMPTY."""
        best = np.empty((len(self._keys), self.size), np.int64)
        for start in range(0, len(best), _SORTED_AT_ONCE):
            part = slice(start, start + _SORTED_AT_ONCE)
            best[part] = np.sort(self._keys[part], axis=1)[:, : -self.size - 1 : -1]
        return best

    def restore(self, best: Integers) -> None:
        """Continue from what `best` returned."""
        self._keys[:] = EMPTY
        self._keys[:, : self.size] = best
        self._used[:] = (best != EMPTY).sum(1)
        self._threshold[:] = np.where(best[:, -1] == EMPTY, -np.inf, scores_of(best[:, -1]))

    def _raise_thresholds(self, scores: Floats, queries: slice) -> None:
        """For new queries with enough scores, admit only the best of them."""
        threshold = self._threshold[queries]
        if scores.shape[1] >= self.size and np.isneginf(threshold).any():
            lowest = np.partition(scores, -self.size, axis=1)[:, -self.size]
            np.maximum(threshold, np.nextafter(lowest, np.float32(-np.inf)), out=threshold)  # just below the lowest

    def _add(self, queries: Integers, items: Integers, scores: Floats) -> None:
        """Put scores, ordered by query, into the buffers; full buffers are reduced to the best."""
        keys = _keys_of(scores, items)
        while len(queries):
            first = np.flatnonzero(np.diff(queries, prepend=-1))  # where the scores of each query begin
            counts, present = np.diff(first, append=len(queries)), queries[first]
            used = self._used[present] + counts
            positions = np.arange(len(queries)) + np.repeat(self._used[present] - first, counts)
            flat = queries * self._capacity + positions
            self._used[present] = np.minimum(used, self._capacity)
            if used.max() <= self._capacity:
                self._keys.reshape(-1)[flat] = keys
                return
            fits = positions < self._capacity
            self._keys.reshape(-1)[flat[fits]] = keys[fits]
            self._reduce(np.unique(queries[~fits]))
            remaining = ~fits & (scores > self._threshold[queries])
            queries, scores, keys = queries[remaining], scores[remaining], keys[remaining]

    def _reduce(self, queries: Integers) -> None:
        """Keep only the best keys of these queries, whose buffers are full."""
        best = np.partition(self._keys[queries], -self.size, axis=1)[:, -self.size :]
        self._keys[queries, : self.size] = best
        self._keys[queries, self.size :] = EMPTY
        self._used[queries] = self.size
        self._threshold[queries] = scores_of(best[:, 0])  # the partition puts the lowest of the best first


def items_of(keys: Integers) -> Integers:
    """The items of keys, -1 for EMPTY."""
    return np.where(keys == EMPTY, -1, _LOW - (keys & _LOW))


def scores_of(keys: Integers) -> Floats:
    """The scores of keys; meaningless for EMPTY."""
    return _mirrored((keys >> 32).astype(np.int32)).view(np.float32)


def _keys_of(scores: Floats, items: Integers) -> Integers:
    ordered = _mirrored((scores + np.float32(0)).view(np.int32))  # adding zero makes -0 equal to 0
    return (ordered.astype(np.int64) << 32) | (_LOW - items)


def _mirrored(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """The bits of floats as integers of the same order, and back: below zero a larger magnitude is less."""
    return bits ^ ((bits >> 31) & np.int32(2**31 - 1))
