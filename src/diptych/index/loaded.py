"""An index in memory: the vectors of each kind, what recent filters let through, and rankings that are read on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from diptych.errors import IndexFileError
from diptych.index.albums import album_store
from diptych.index.backend import IndexStore
from diptych.index.entries import Filters, Kind
from diptych.index.exact import Pool
from diptych.index.ivf import Ivf
from diptych.index.ranking import Ranking

_CACHED_FILTERS = 4
_CACHED_RANKINGS = 16  # of queries of which somebody reads page after page


class LoadedIndex:
    """One generation of an index in memory; each part is loaded when it is first needed.

    Threads may share it. Once the store has changed, parts that are loaded later belong to a newer generation; check
    `is_current` and create another LoadedIndex.
    """

    def __init__(self, store: IndexStore) -> None:
        self.generation, self.instance = store.generation, store.instance
        self.ivfs: dict[Kind, Ivf | None] = {}
        self.examples: tuple[str, ...] | None = None  # of queries, once they are chosen
        self._store = store
        self._lock = threading.Lock()
        self._pools: dict[Kind, Pool] = {}
        self._rankings: OrderedDict[Hashable, Ranking] = OrderedDict()
        self._filtered: OrderedDict[tuple[Kind, Filters, int], Pool] = OrderedDict()

    @property
    def is_current(self) -> bool:
        """Whether the store has not changed since."""
        return self._store.generation == self.generation

    def pool(self, kind: Kind, filters: Filters | None = None) -> Pool:
        """The entries of a kind that pass the filters."""
        with self._lock:
            if kind not in self._pools:
                self._pools[kind] = self._load(kind)
            unfiltered = self._pools[kind]
            if filters is None or filters == Filters():
                return unfiltered
            edition = 0 if filters.album is None else album_store(self._store).album_edition
            key = kind, filters, edition
            if key not in self._filtered:
                self._filtered[key] = unfiltered.restricted(self._store.matching(kind, filters))
                if len(self._filtered) > _CACHED_FILTERS:
                    self._filtered.popitem(last=False)
            self._filtered.move_to_end(key)
            return self._filtered[key]

    def take_ranking(self, key: Hashable) -> Ranking | None:
        """A ranking that was kept under this key, which nobody else then has."""
        with self._lock:
            return self._rankings.pop(key, None)

    def keep_ranking(self, key: Hashable, ranking: Ranking) -> None:
        """Keep a ranking for its next page; the least recently used one is dropped."""
        with self._lock:
            self._rankings[key] = ranking
            self._rankings.move_to_end(key)
            if len(self._rankings) > _CACHED_RANKINGS:
                self._rankings.popitem(last=False)

    def _load(self, kind: Kind) -> Pool:
        pool = Pool(*self._store.vectors(kind))
        if not np.isfinite(pool.norms).all():
            raise IndexFileError(
                f"{self._store.address}: contains vectors that are not finite; "
                f"`diptych index rebuild {self._store.address}` rebuilds it from the images"
            )
        return pool
