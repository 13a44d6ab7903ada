"""An index in memory: the vectors of each kind, what recent filters let through, and rankings that are read on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from diptych.errors import IndexFileError
from diptych.index import vector_cache
from diptych.index.albums import album_store
from diptych.index.backend import IndexStore
from diptych.index.entries import Filters, Kind
from diptych.index.exact import Pool
from diptych.index.pools import EntryPool, SearchingStore
from diptych.index.ranking import Ranking

if TYPE_CHECKING:
    from diptych.index.preselection import Preselector

_CACHED_FILTERS = 4
_CACHED_RANKINGS = 16  # of queries of which somebody reads page after page


class LoadedIndex:
    """One generation of an index in memory; each part is loaded when it is first needed.

    Threads may share it. Once the store has changed, parts that are loaded later belong to a newer generation; check
    `is_current` and create another LoadedIndex. Vectors of more than `map_above` entries are mapped from a file beside
    the index (see `vector_cache`), and `failure` says why not, if that was impossible.
    """

    def __init__(self, store: IndexStore, map_above: int = vector_cache.ABOVE) -> None:
        self.generation, self.instance = store.generation, store.instance
        self.preselectors: dict[Kind, Preselector | None] = {}
        self.examples: tuple[str, ...] | None = None  # of queries, once they are chosen
        self.failure: str | None = None
        self._store, self._map_above = store, map_above
        self._lock = threading.Lock()
        self._pools: dict[Kind, Pool] = {}
        self._rankings: OrderedDict[Hashable, Ranking] = OrderedDict()
        self._filtered: OrderedDict[tuple[Kind, Filters, int], EntryPool] = OrderedDict()

    @property
    def is_current(self) -> bool:
        """Whether the store has not changed since, nor been replaced, be it by a copy of itself."""
        return (self._store.generation, self._store.instance) == (self.generation, self.instance)

    def in_memory(self, kind: Kind) -> Pool:
        """All entries of a kind, with their vectors in memory."""
        with self._lock:
            return self._in_memory(kind)

    def pool(self, kind: Kind, filters: Filters | None = None) -> EntryPool:
        """The entries of a kind that pass the filters; nothing is loaded if the backend searches by itself."""
        filters = filters or Filters()
        with self._lock:
            is_searching = isinstance(self._store, SearchingStore)
            if not is_searching and filters == Filters():
                return self._in_memory(kind)
            edition = 0 if filters.album is None else album_store(self._store).album_edition
            key = kind, filters, edition
            if key not in self._filtered:
                self._filtered[key] = self._filter(kind, filters)
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

    def _filter(self, kind: Kind, filters: Filters) -> EntryPool:
        if isinstance(self._store, SearchingStore):
            return self._store.pool(kind, filters)
        return self._in_memory(kind).restricted(self._store.matching(kind, filters))

    def _in_memory(self, kind: Kind) -> Pool:
        if kind not in self._pools:
            self._pools[kind] = self._load(kind)
        return self._pools[kind]

    def _load(self, kind: Kind) -> Pool:
        if self._store.counts()[kind] > self._map_above:
            pool, failure = vector_cache.packed_pool(self._store, kind)
            self.failure = self.failure or failure
        else:
            pool = Pool(*self._store.vectors(kind))
        if not np.isfinite(pool.norms).all():
            raise IndexFileError(
                f"{self._store.address}: contains vectors that are not finite; "
                f"`diptych index rebuild {self._store.address}` rebuilds it from the images"
            )
        return pool
