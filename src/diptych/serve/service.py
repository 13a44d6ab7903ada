"""The state that all routes share: the indexes, the batches, a thread pool, and the metrics."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar, cast

from diptych.errors import DataError, DiptychError, did_you_mean
from diptych.index.entries import Entry
from diptych.index.search import Searcher
from diptych.models.engines.engine import Encodings
from diptych.serve.batching import Batcher
from diptych.serve.errors import RequestError
from diptych.serve.metrics import Metrics
from diptych.serve.queries import EncodingQuery, QueryResult, QueryRunner, SearchQuery, SearchResult, no_such_entry
from diptych.serve.uploads import Uploads

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

THREADS = 4  # for reading indexes and encoding pictures; batches and uploads have one thread each
UNAVAILABLE = (DiptychError, sqlite3.Error, OSError)  # raised by an index that cannot be read at the moment


class Service:
    """Indexes by their names, the first of which is the default, while they are served."""

    def __init__(self, searchers: Mapping[str, Searcher]) -> None:
        self.searchers = searchers
        self.metrics = Metrics(self._entry_counts)
        runner = QueryRunner(searchers, self.metrics)
        self._batcher: Batcher[EncodingQuery, QueryResult] = Batcher(runner.run)
        self.uploads = Uploads(runner.cached_image)
        self._pool = ThreadPoolExecutor(THREADS, "diptych-serve")

    def index_name(self, name: str) -> str:
        """The name of a served index: `name`, or the default if it is empty."""
        if not name:
            return next(iter(self.searchers))
        if name not in self.searchers:
            suggestion = did_you_mean(name[:100], self.searchers)
            raise RequestError(404, f"no index {name[:100]!r} is served; {suggestion}")
        return name

    def searcher(self, name: str) -> Searcher:
        """A served index by its name, or the default."""
        return self.searchers[self.index_name(name)]

    async def search(self, query: SearchQuery) -> SearchResult:
        """The result of a query, which shares a batch with concurrent ones."""
        return cast(SearchResult, await self._batcher.submit(query))

    async def encode(self, query: EncodingQuery) -> Encodings:
        """The encoding of a query, one row; it shares a batch and the cache with concurrent searches."""
        return cast(Encodings, await self._batcher.submit(query))

    async def run_in_thread(
        self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Run something that takes a while without blocking other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*arguments, **named))

    def close(self) -> None:
        """End the threads; a later request starts new ones."""
        self._batcher.close()
        self.uploads.close()
        self._pool.shutdown(cancel_futures=True)
        self._pool = ThreadPoolExecutor(THREADS, "diptych-serve")

    def _entry_counts(self) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for name, searcher in self.searchers.items():
            try:
                counts |= {(name, kind): count for kind, count in searcher.store.counts().items()}
            except UNAVAILABLE:  # /health reports it; the other metrics are still wanted
                continue
        return counts


def find_entry(searcher: Searcher, entry: int) -> Entry:
    """An entry by its id; a RequestError if there is none."""
    try:
        return searcher.store.entries([entry])[0]
    except DataError:
        raise no_such_entry(entry) from None
