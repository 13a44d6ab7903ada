"""The ranking of one query: its candidates, best first, taken as they are needed, and which of them are hits.

A near-duplicate is represented by the best hit that shows the same, on whatever page that is. Whether a candidate is a
hit depends only on better ones, so the pages of an answer fit together, and a ranking that is kept makes the next page
as fast as the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.entries import Method
from diptych.index.query import Cursor

WINDOW = 4_000  # the last hits that a candidate is compared with, which bounds the time of a page however deep it is
_DEEPER = 4  # factor by which the number of candidates grows
_CLOSE = 1e-3  # relative difference of two scores of one entry by the same model, encoded in another batch


@dataclass(frozen=True)
class Candidates:
    """Candidates of one query, best first: rows of the pool, the scores to show, and the inner products.

    A product is infinite for a row that has all words of the query, and minus infinity if it is not known. `more` is
    whether the pool has further rows.
    """

    rows: Integers
    scores: Floats
    products: Floats
    more: bool
    method: Method


class Groups(Protocol):
    """Groups candidates that show the same; they are added in the order of the ranking."""

    def add(self, rows: Integers) -> Integers:
        """For each new row, the row of the hit that represents it: its own row if it is a hit, -1 if it is excluded."""
        ...


class Ranking:
    """The candidates of one query among a number of entries; `ids_of` returns the ids of rows.

    `extend(depth, since)` returns at least `depth` candidates, if the pool has them; a longer list begins as a shorter
    one, and candidates before `since` may be in any order. Each `tier` candidates are in the order of their scores,
    which are `relative` if they change with the other entries.
    """

    def __init__(
        self,
        entries: int,
        ids_of: Callable[[Integers], Integers],
        extend: Callable[[int, int], Candidates],
        groups: Callable[[], Groups],
        tier: int | None = None,
        *,
        relative: bool = False,
    ) -> None:
        self._entries, self._ids_of = entries, ids_of
        self.extend, self._new_groups = extend, groups
        self._tier, self._relative = tier, relative
        no_scores = np.zeros(0, np.float32)
        self.found = Candidates(np.zeros(0, np.int64), no_scores, no_scores, True, "exact")
        self._begin = 0
        self._regroup()

    def page(self, start: int, k: int) -> tuple[Integers, bool]:
        """The places of k hits from a place on, counted from zero, if there are that many; and whether more follow."""
        step = 2 * k + 16  # some of them will be near-duplicates
        self._take(start + step, start)
        while True:
            hits = start + np.flatnonzero(self._hit_of[start:] == self.found.rows[start : len(self._hit_of)])
            if len(hits) > k:
                return hits[:k], True
            if len(self._hit_of) == len(self.found.rows):
                if not self.found.more:
                    return hits, False
                self._take(_DEEPER * len(self.found.rows), start)
            self._group(step)

    def near(self, place: int) -> Integers:
        """The ids of the near-duplicates of the hit at a place, among the candidates that were looked at."""
        same = self._hit_of == self.found.rows[place]
        same[place] = False
        ids: Integers = self._ids_of(self.found.rows[: len(same)][same])
        return ids

    def start(self, cursor: Cursor) -> int:
        """The place after a cursor, counted from zero: after its hit, or after its score if the hit has changed."""
        last = min(cursor.place, self._entries)  # entries may have been removed
        self._take(last, last)
        while True:
            ids, scores = self._ids_of(self.found.rows), self.found.scores
            place = np.flatnonzero(ids == cursor.id)
            if len(place) and (self._relative or np.isclose(scores[place[0]], cursor.score, rtol=_CLOSE, atol=1e-6)):
                return int(place[0]) + 1
            begin = 0 if self._tier is None else (last - 1) // self._tier * self._tier
            worse = (scores < cursor.score) | ((scores == cursor.score) & (ids > cursor.id))
            if worse[begin:].any():
                return begin + int(np.argmax(worse[begin:]))
            if not self.found.more:
                return len(ids)
            self._take(_DEEPER * len(ids), last)

    def _take(self, depth: int, start: int) -> None:
        """Take at least `depth` candidates, which are in order from WINDOW places before `start` on."""
        begin, known = max(0, start - WINDOW), self.found
        if begin >= self._begin and (len(known.rows) >= depth or not known.more):
            return
        if begin < self._begin or not len(known.rows):
            self._begin = begin
            self._regroup()
        self.found = self.extend(max(depth, len(known.rows)), self._begin)
        done = slice(self._begin, len(self._hit_of))
        if not np.array_equal(known.rows[done], self.found.rows[done]):
            self._regroup()  # the first candidates were those of an approximate search

    def _regroup(self) -> None:
        self._groups = self._new_groups()
        self._hit_of = np.full(self._begin, -1, np.int64)  # of each candidate, a row of the pool

    def _group(self, count: int) -> None:
        """Look at the next candidates: which of them are hits."""
        rows = self.found.rows[len(self._hit_of) :][:count]
        self._hit_of = np.concatenate([self._hit_of, self._groups.add(rows)])
