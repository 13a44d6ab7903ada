"""What a searcher holds of an index: the vectors of each kind, and what filters let through, of one generation."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from diptych.errors import IndexFileError
from diptych.index.entries import Filters, Kind
from diptych.index.exact import Pool
from diptych.index.ivf import Ivf
from diptych.index.sqlite.store import Store

REMEMBERED = 4  # filters


class LoadedIndex:
    """An index in memory as it was at one moment; each part is loaded when it is first asked for.

    Threads may share it. Where the store has changed since, what is loaded later is of another moment: `current`
    tells, and who holds it makes another.
    """

    def __init__(self, store: Store) -> None:
        self.generation, self.file = store.generation, store.database.file
        self.ivfs: dict[Kind, Ivf | None] = {}
        self._store = store
        self._lock = threading.Lock()
        self._pools: dict[Kind, Pool] = {}
        self._narrowed: OrderedDict[tuple[Kind, Filters], Pool] = OrderedDict()

    @property
    def current(self) -> bool:
        """Whether the store is still as it was."""
        return self._store.generation == self.generation

    def pool(self, kind: Kind, filters: Filters | None = None) -> Pool:
        """The entries of a kind that filters let through."""
        with self._lock:
            if kind not in self._pools:
                self._pools[kind] = self._load(kind)
            whole = self._pools[kind]
            if filters is None or filters == Filters():
                return whole
            key = kind, filters
            if key not in self._narrowed:
                self._narrowed[key] = whole.narrowed(self._store.matching(kind, filters))
                if len(self._narrowed) > REMEMBERED:
                    self._narrowed.popitem(last=False)
            self._narrowed.move_to_end(key)
            return self._narrowed[key]

    def _load(self, kind: Kind) -> Pool:
        pool = Pool(*self._store.vectors(kind))
        if not np.isfinite(pool.lengths).all():
            raise IndexFileError(
                f"{self._store.path}: vectors that are no numbers; "
                f"`diptych index rebuild {self._store.path}` makes it anew from the images"
            )
        return pool
