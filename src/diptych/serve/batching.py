"""Concurrent queries share one pass: while one batch is processed, the queries that arrive form the next.

Nothing is delayed to fill a batch: a query that arrives while the worker is idle is processed alone. Equal queries that
are pending at the same time are processed once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from diptych.serve.errors import RequestError

Query = TypeVar("Query", bound=Hashable)
Result = TypeVar("Result")
Item = TypeVar("Item")

BATCH_SIZE = 64  # at most
QUEUE_LIMIT = 1024  # pending queries; with more, it is better to retry than to wait


class Batcher(Generic[Query, Result]):
    """Processes queries in batches on one thread; `process` returns a result or an exception per query."""

    def __init__(
        self,
        process: Callable[[Sequence[Query]], Sequence[Result | Exception]],
        batch_size: int = BATCH_SIZE,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self._process = process
        self._batch_size = batch_size
        self._queue_limit = queue_limit
        self._thread = ThreadPoolExecutor(1, "diptych-batches")
        self._queue: deque[Query] = deque()
        self._waiting: dict[Query, list[asyncio.Future[Result]]] = {}  # by query, queued or being processed
        self._running: asyncio.Task[None] | None = None

    async def submit(self, query: Query) -> Result:
        """The result of a query; a RequestError if too many are pending."""
        waiting = self._waiting.get(query)
        if waiting is None:
            if len(self._queue) >= self._queue_limit:
                raise RequestError(503, f"{self._queue_limit:,} queries are already waiting; try again in a moment")
            waiting = self._waiting[query] = []
            self._queue.append(query)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        waiting.append(future)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """End the thread after its current batch; a later query starts a new one."""
        self._thread.shutdown(cancel_futures=True)
        self._thread = ThreadPoolExecutor(1, "diptych-batches")

    async def _run(self) -> None:
        try:
            while batch := self._take():
                for query, result in zip(batch, await self._results(batch), strict=True):
                    for future in self._waiting.pop(query):
                        if future.done():  # the client has disconnected
                            continue
                        if isinstance(result, Exception):
                            future.set_exception(result)
                        else:
                            future.set_result(result)
        finally:
            self._running = None
            self._fail_pending()

    def _fail_pending(self) -> None:
        """Fail the queries that are still waiting, if the run was cancelled."""
        for future in [future for futures in self._waiting.values() for future in futures if not future.done()]:
            future.set_exception(RequestError(503, "the service was interrupted; try again"))
        self._waiting.clear()
        self._queue.clear()

    def _take(self) -> list[Query]:
        """The next batch, without queries whose clients have all disconnected."""
        batch: list[Query] = []
        while self._queue and len(batch) < self._batch_size:
            query = self._queue.popleft()
            if all(future.done() for future in self._waiting[query]):
                del self._waiting[query]
            else:
                batch.append(query)
        return batch

    async def _results(self, batch: list[Query]) -> Sequence[Result | Exception]:
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._process, batch)
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results for {len(batch)} queries")
            return results
        except Exception as error:
            return [error] * len(batch)


def isolate_failures(
    process: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]
) -> list[Result | Exception]:
    """Process all items together; if that fails, one by one, so that a bad item does not fail the others."""
    try:
        return list(process(items)) if items else []
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [result for item in items for result in isolate_failures(process, [item])]
