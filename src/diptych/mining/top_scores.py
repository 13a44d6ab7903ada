"""The highest scores of many owners, kept while scores come in tiles.

A score and the number of the item that has it make one integer key. A higher score is a higher key, and of two equal
scores that of the smaller number: keys never tie. Each owner has a buffer of keys; when it is full, the best are kept,
and the least of them is what later scores have to exceed. Of n scores in no order only about h (1 + ln(n / h)) ever
enter a buffer: beside the comparison of each score there is little to do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers

EMPTY = np.iinfo(np.int64).min  # below the key of any score

_LOW = 2**32 - 1  # the lower half of a key
_SORTED_AT_ONCE = 4096


class TopScores:
    """The `size` highest scores of each owner, and whose they are; items are numbered below 2^32.

    Scores must come in ascending order of their items for each owner: an equal score that comes later is not taken.
    A score of minus infinity is never taken.
    """

    def __init__(self, owners: int, size: int) -> None:
        self.size = size
        self._capacity = size + max(size, 32)
        self._keys = np.full((owners, self._capacity), EMPTY)
        self._used = np.zeros(owners, np.int64)
        self._least = np.full(owners, -np.inf, np.float32)  # what a score must exceed to be among the highest

    def offer(self, scores: Floats, owners: slice, items: slice) -> None:
        """Take what is high enough of (owners, items) scores, in memory owner by owner or item by item."""
        self._raise_least(scores, owners)
        above = scores > self._least[owners, None]  # laid out as the scores are
        if above.flags.c_contiguous:
            flat = np.flatnonzero(above)
            owner, item = np.divmod(flat, above.shape[1])
            high = scores.ravel().take(flat)
        else:
            flat = np.flatnonzero(above.T)
            item, owner = np.divmod(flat, above.shape[0])
            by_owner = np.argsort(owner.astype(np.min_scalar_type(above.shape[0])), kind="stable")  # small: radix sort
            owner, item, high = owner[by_owner], item[by_owner], scores.T.ravel().take(flat[by_owner])
        self._add(owner + owners.start, item + items.start, high)

    def best(self) -> Integers:
        """The keys of the highest scores, highest first: (owners, size), EMPTY after the last."""
        best = np.empty((len(self._keys), self.size), np.int64)
        for start in range(0, len(best), _SORTED_AT_ONCE):
            part = slice(start, start + _SORTED_AT_ONCE)
            best[part] = np.sort(self._keys[part], axis=1)[:, : -self.size - 1 : -1]
        return best

    def restore(self, best: Integers) -> None:
        """Go on from what `best` gave."""
        self._keys[:] = EMPTY
        self._keys[:, : self.size] = best
        self._used[:] = (best != EMPTY).sum(1)
        self._least[:] = np.where(best[:, -1] == EMPTY, -np.inf, scores_of(best[:, -1]))

    def _raise_least(self, scores: Floats, owners: slice) -> None:
        """Where an owner is new and many scores come, let in only the best of them."""
        least = self._least[owners]
        if scores.shape[1] >= self.size and np.isneginf(least).any():
            last = np.partition(scores, -self.size, axis=1)[:, -self.size]
            np.maximum(least, np.nextafter(last, np.float32(-np.inf)), out=least)  # just below: it is one of them

    def _add(self, owners: Integers, items: Integers, scores: Floats) -> None:
        """Put scores, in the order of their owners, into the buffers; full ones are reduced to the best."""
        keys = _keys_of(scores, items)
        while len(owners):
            first = np.flatnonzero(np.diff(owners, prepend=-1))  # where the scores of an owner begin
            counts, present = np.diff(first, append=len(owners)), owners[first]
            used = self._used[present] + counts
            places = np.arange(len(owners)) + np.repeat(self._used[present] - first, counts)
            flat = owners * self._capacity + places
            self._used[present] = np.minimum(used, self._capacity)
            if used.max() <= self._capacity:
                self._keys.reshape(-1)[flat] = keys
                return
            fits = places < self._capacity
            self._keys.reshape(-1)[flat[fits]] = keys[fits]
            self._reduce(np.unique(owners[~fits]))
            left = ~fits & (scores > self._least[owners])
            owners, scores, keys = owners[left], scores[left], keys[left]

    def _reduce(self, owners: Integers) -> None:
        """Keep only the best of these owners' buffers, which are full."""
        best = np.partition(self._keys[owners], -self.size, axis=1)[:, -self.size :]
        self._keys[owners, : self.size] = best
        self._keys[owners, self.size :] = EMPTY
        self._used[owners] = self.size
        self._least[owners] = scores_of(best[:, 0])  # where the cut is


def items_of(keys: Integers) -> Integers:
    """The items of keys, -1 where there is none."""
    return np.where(keys == EMPTY, -1, _LOW - (keys & _LOW))


def scores_of(keys: Integers) -> Floats:
    """The scores of keys; that of EMPTY means nothing."""
    return _mirrored((keys >> 32).astype(np.int32)).view(np.float32)


def _keys_of(scores: Floats, items: Integers) -> Integers:
    ordered = _mirrored((scores + np.float32(0)).view(np.int32))  # with zero added: -0 equals 0
    return (ordered.astype(np.int64) << 32) | (_LOW - items)


def _mirrored(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """The bits of floats as integers of the same order, and back: below zero a larger magnitude is less."""
    return bits ^ ((bits >> 31) & np.int32(2**31 - 1))
