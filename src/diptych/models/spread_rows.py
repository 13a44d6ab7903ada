"""Encoded images or texts that are spread over ranks, so that no rank has to hold all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.models.layers.sets import concatenate_encodings
from diptych.ranks import Ranks

_MOVED_AT_ONCE = 2048  # rows


class SpreadRows:
    """Rows of which each rank holds a consecutive share; all ranks must call the methods in the same order.

    A rank can index the rows that were placed on it, and those that are shown to all.
    """

    def __init__(self, own: Tensor, ranks: Ranks) -> None:
        """`own` are the rows of this rank, which follow those of the ranks before it."""
        self.ranks = ranks
        sizes = ranks.gather_numbers(len(own), own.shape[1])
        if own.dim() == 3:  # sets are as large on all ranks
            largest = max(places for _, places in sizes)
            own = concatenate_encodings([own, own.new_zeros(0, largest, own.shape[2])])
        self._own, self._placed, self._shown = own, own, own[:0]
        self._starts = np.cumsum([0, *(count for count, _ in sizes)])
        self._place = np.full(len(self), -1)  # of each row among the rows placed here, followed by those shown
        self._place[self._starts[ranks.rank] : self._starts[ranks.rank + 1]] = np.arange(len(own))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        places = self._place[index if isinstance(index, slice) else index.numpy()]
        rows = self._placed
        if len(places) and places.min() >= len(rows):
            rows, places = self._shown, places - len(rows)
        if (np.diff(places) == 1).all() and len(places):
            return rows[int(places[0]) : int(places[-1]) + 1]
        return rows[torch.from_numpy(places).to(rows.device)]

    def place(self, wanted: Sequence[Integers]) -> None:
        """Give each rank the rows that it wants, in that order; no row is wanted by two."""
        rank, own = self.ranks.rank, self._own
        taker = np.full(len(self), -1)
        for number, rows in enumerate(wanted):
            taker[rows] = number
        self._place = np.full(len(self), -1)
        self._place[wanted[rank]] = np.arange(len(wanted[rank]))
        self._placed, self._shown = own.new_empty((len(wanted[rank]), *own.shape[1:])), own[:0]
        for begin in range(0, len(self), _MOVED_AT_ONCE):
            rows = np.arange(begin, min(begin + _MOVED_AT_ONCE, len(self)))
            holder = np.searchsorted(self._starts, rows, "right") - 1
            kept = rows[(holder == rank) & (taker[rows] == rank)]
            self._put(kept, self._held(kept))
            is_moved = (taker[rows] >= 0) & (taker[rows] != holder)
            if not is_moved.any():
                continue
            moved, holder = rows[is_moved], holder[is_moved]
            for number, part in enumerate(self.ranks.gather(self._held(moved[holder == rank]))):
                sent = moved[holder == number]
                mine = taker[sent] == rank
                self._put(sent[mine], part[torch.from_numpy(mine).to(part.device)])

    def show(self, index: slice | Tensor, rank: int) -> None:
        """Let all ranks index some rows that were placed on one of them, until others are shown."""
        is_here = self.ranks.rank == rank
        if not is_here:
            self._place[self._place >= len(self._placed)] = -1
            rows = np.arange(len(self))[index if isinstance(index, slice) else index.numpy()]
            self._place[rows] = len(self._placed) + np.arange(len(rows))
            self._shown = self._own.new_empty((len(rows), *self._own.shape[1:]))
        self.ranks.broadcast_(self[index].contiguous() if is_here else self._shown, rank)

    def on_first(self) -> Tensor:
        """All rows on the first rank, and none on the others."""
        parts: list[list[Tensor]] = [[self._own[:0]] for _ in range(self.ranks.count)]
        for begin in range(0, int(np.diff(self._starts).max()), _MOVED_AT_ONCE):
            rows = self._own[begin : begin + _MOVED_AT_ONCE]
            for number, part in enumerate(self.ranks.gather(rows)):
                if self.ranks.is_first:
                    parts[number].append(part)
        return torch.cat([part for of_rank in parts for part in of_rank])

    @property
    def own(self) -> Tensor:
        """The rows that this rank was given."""
        return self._own

    def _held(self, rows: Integers) -> Tensor:
        return self._own[torch.from_numpy(rows - self._starts[self.ranks.rank]).to(self._own.device)]

    def _put(self, rows: Integers, values: Tensor) -> None:
        self._placed[torch.from_numpy(self._place[rows]).to(values.device)] = values


def own_rows(rows: Tensor | SpreadRows) -> Tensor:
    """The rows that this process has: all of them, unless they are spread over ranks."""
    return rows.own if isinstance(rows, SpreadRows) else rows
