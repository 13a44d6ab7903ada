"""What the routes share: the indexes, the batches, a few threads, and the counters."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from diptych.errors import DataError, DiptychError, did_you_mean
from diptych.index.entries import Entry
from diptych.index.search import Searcher
from diptych.serve.batching import Batcher
from diptych.serve.errors import RefusedError
from diptych.serve.metrics import Metrics
from diptych.serve.queries import Found, Queries, Question
from diptych.serve.stored import missing
from diptych.serve.uploads import Uploads

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

THREADS = 4  # that read the indexes and make pictures; batches and uploads have one each of their own
FAILURES = (DiptychError, sqlite3.Error, OSError)  # of an index that cannot be read at the moment


class Service:
    """Some indexes by their names, the first of which is the default, as long as they are served."""

    def __init__(self, searchers: Mapping[str, Searcher]) -> None:
        self.searchers = searchers
        self.metrics = Metrics(self._counts)
        queries = Queries(searchers, self.metrics)
        self._batcher: Batcher[Question, Found] = Batcher(queries.answer)
        self.uploads = Uploads(queries.encoded)
        self._pool = ThreadPoolExecutor(THREADS, "diptych-serve")

    def named(self, name: str) -> str:
        """The name of an index that is there: this one, or the first where none is named."""
        if not name:
            return next(iter(self.searchers))
        if name not in self.searchers:
            raise RefusedError(
                404, f"no index {name[:100]!r} is served here; {did_you_mean(name[:100], self.searchers)}"
            )
        return name

    async def ask(self, question: Question) -> Found:
        """The answer to a question, which shares its pass with those that are asked at the same time."""
        return await self._batcher.ask(question)

    async def in_thread(
        self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Do what takes a while without holding up other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*arguments, **named))

    def close(self) -> None:
        """End the threads; whoever asks again begins new ones."""
        self._batcher.close()
        self.uploads.close()
        self._pool.shutdown(cancel_futures=True)
        self._pool = ThreadPoolExecutor(THREADS, "diptych-serve")

    def _counts(self) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for name, searcher in self.searchers.items():
            try:
                counts |= {(name, kind): count for kind, count in searcher.store.counts().items()}
            except FAILURES:  # /health tells it; the other figures are still wanted
                continue
        return counts


def entry_of(searcher: Searcher, entry: int) -> Entry:
    """An entry by its id, or a refusal."""
    try:
        return searcher.store.entries([entry])[0]
    except DataError:
        raise missing(entry) from None
