"""Which entries are scored for a query: all of them, or candidates that codes beside the index select.

Codes are smaller than the vectors and compared faster. Candidates are always scored exactly with the vectors of the
index, so that codes can cost recall, but never change a score.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.errors import DiptychError, IndexFileError
from diptych.files import locked_file
from diptych.index import ivf as ivf_cache
from diptych.index import vector_cache
from diptych.index.backend import IndexStore
from diptych.index.entries import Kind, Method
from diptych.index.exact import Pool
from diptych.index.ivf import IvfCodes
from diptych.index.loaded import LoadedIndex

UseIvf = Literal["auto", "always", "never"]
Codes = Literal["auto", "int8", "pq"]

RESCORED = 256  # candidates of int8 that are scored exactly
FEWEST = 10_000  # entries; product quantisation learns from them
_PATIENCE = 3600.0  # seconds to wait while another process builds a cache


class Preselector(Protocol):
    """Selects candidates from a pool."""

    @property
    def method(self) -> Method:
        """What answers call this way to find hits."""
        ...

    @property
    def entries(self) -> int:
        """The number of entries of the pool that it was made for."""
        ...

    def candidates(self, queries: Floats, count: int, allowed: Integers | None = None) -> list[Integers]:
        """About `count` rows of the pool per query, (queries, size), or more; only rows in `allowed`, if given."""
        ...


class Int8Codes:
    """Every entry is compared with the query, in one byte per number; the best are candidates."""

    method: Method = "int8"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.entries = len(pool.ids)

    def candidates(self, queries: Floats, count: int, allowed: Integers | None = None) -> list[Integers]:
        """At least `RESCORED` rows per query, if there are so many."""
        pool = self._pool
        if allowed is not None:
            pool = Pool(pool.ids, pool.vectors, allowed, pool.norms)
        return [np.sort(found.rows) for found in pool.top(queries, max(count, RESCORED))]


class Preselection:
    """Chooses how candidates of an index are selected, and makes the codes if they are missing or stale.

    `codes` are "int8", "pq" (an IVF with product quantisation), or with "auto" those of an IVF, if `ivf` is "always" or
    there are more than `ivf_above` entries. An IVF that was not asked for is built in the background, if `build`.
    """

    def __init__(
        self, store: IndexStore, identity: str, *, ivf: UseIvf, ivf_above: int, build: bool, codes: Codes
    ) -> None:
        option = f"--codes {codes}" if codes != "auto" else "--ivf always"
        if (ivf == "always" or codes == "pq") and not ivf_cache.available():
            raise DiptychError(f"{option} {ivf_cache.NEEDS_FAISS}")
        if (ivf == "always" or codes != "auto") and store.cache_path is None:
            raise DiptychError(f"{option}: {store.address} keeps no caches; leave it out")
        self._store, self._identity = store, identity
        self._ivf, self._above, self._build_missing, self._codes = ivf, ivf_above, build, codes
        self._lock = threading.Lock()
        self.failure: str | None = None

    def notes(self) -> list[str]:
        """What a person should know: that all entries are searched exactly, although there are many, and why."""
        is_large = self._store.cache_path is not None and max(self._store.counts().values()) > self._above
        if self._codes == self._ivf == "auto" and is_large and not ivf_cache.available():
            return [f"searching all entries exactly; a faster search of this many {ivf_cache.NEEDS_FAISS}"]
        return [] if self.failure is None else [f"searching all entries exactly: {self.failure}"]

    def of(self, loaded: LoadedIndex, kind: Kind) -> Preselector | None:
        """What selects the candidates of a kind; None if all entries are scored."""
        if self._store.cache_path is None:
            return None
        pool = loaded.in_memory(kind)
        if not len(pool.ids):
            return None
        if self._codes == "int8":
            return self._int8(loaded, kind, pool)
        if self._codes == "pq":
            return self._cached_ivf(loaded, kind, "pq", at_once=True) if len(pool.ids) >= FEWEST else None
        wanted = self._ivf == "always" or (self._ivf == "auto" and len(pool.ids) > self._above)
        if not wanted or not ivf_cache.available():
            return None
        return self._cached_ivf(loaded, kind, "int8", at_once=self._ivf == "always")

    def _int8(self, loaded: LoadedIndex, kind: Kind, pool: Pool) -> Preselector | None:
        if self._store.spec.storage == "int8":  # the vectors themselves are as small
            return None
        with self._lock:
            if kind not in loaded.preselectors:
                codes, failure = vector_cache.packed_pool(self._store, kind, "int8")
                self.failure = self.failure or failure
                # The index may have changed since its vectors were loaded; then it is loaded again for the next query.
                loaded.preselectors[kind] = Int8Codes(codes) if np.array_equal(codes.ids, pool.ids) else None
            return loaded.preselectors[kind]

    def _cached_ivf(self, loaded: LoadedIndex, kind: Kind, codes: IvfCodes, *, at_once: bool) -> Preselector | None:
        assert self._store.cache_path is not None
        file = ivf_cache.cache_file(self._store.cache_path, kind, codes)
        with self._lock:
            if kind in loaded.preselectors:
                return loaded.preselectors[kind]
            found = ivf_cache.load(file, loaded.in_memory(kind), self._identity, loaded.generation)
            loaded.preselectors[kind] = found
        if found is None and at_once:
            self._build(loaded, kind, file, codes)
        elif found is None and self._build_missing:
            threading.Thread(target=self._build, args=(loaded, kind, file, codes), daemon=True).start()
        return loaded.preselectors[kind]

    def _build(self, loaded: LoadedIndex, kind: Kind, file: Path, codes: IvfCodes) -> None:
        other: Kind = "text" if kind == "image" else "image"
        pool, others = loaded.in_memory(kind), loaded.in_memory(other).vectors
        about = self._identity, loaded.generation
        try:
            with locked_file(file, IndexFileError, _PATIENCE):
                found = ivf_cache.load(file, pool, *about)  # another process may have built it meanwhile
                loaded.preselectors[kind] = found or ivf_cache.build(file, pool, others, *about, codes)
        except IndexFileError as reason:
            self.failure = str(reason)
        except OSError as reason:
            self.failure = f"{file}: the cache cannot be written ({reason.strerror})"
        except RuntimeError as reason:  # raised by FAISS
            self.failure = f"{file}: the cache cannot be built ({' '.join(str(reason).split())[:200]})"
