"""Questions that are asked at the same time share one pass: all that wait when the worker is free go together.

Nobody waits for company. A question that finds the worker free goes alone; those that come while it works are the next
batch. The same question asked twice at a time is answered once, for both.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from diptych.serve.errors import RefusedError

Question = TypeVar("Question", bound=Hashable)
Result = TypeVar("Result")
Item = TypeVar("Item")

TOGETHER = 64  # questions of a pass at most
WAITING = 1024  # questions that may wait; at more than that, waiting is worse than asking again


class Batcher(Generic[Question, Result]):
    """Answers questions in batches on one thread; `work` gives each its result, or the error that is its alone."""

    def __init__(
        self,
        work: Callable[[Sequence[Question]], Sequence[Result | Exception]],
        together: int = TOGETHER,
        waiting: int = WAITING,
    ) -> None:
        self._work = work
        self._together = together
        self._waiting = waiting
        self._thread = ThreadPoolExecutor(1, "diptych-batches")
        self._queue: deque[Question] = deque()
        self._askers: dict[Question, list[asyncio.Future[Result]]] = {}  # of questions that wait or are worked on
        self._running: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Result:
        """The question's result; refused where too many wait already."""
        askers = self._askers.get(question)
        if askers is None:
            if len(self._queue) >= self._waiting:
                raise RefusedError(503, f"{self._waiting:,} questions wait already; try again in a moment")
            askers = self._askers[question] = []
            self._queue.append(question)
        asker: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        askers.append(asker)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await asker

    def close(self) -> None:
        """End the thread, once it has done what it does; whoever asks again begins a new one."""
        self._thread.shutdown(cancel_futures=True)
        self._thread = ThreadPoolExecutor(1, "diptych-batches")

    async def _run(self) -> None:
        try:
            while batch := self._take():
                for question, result in zip(batch, await self._results(batch), strict=True):
                    for asker in self._askers.pop(question):
                        if asker.done():  # who asked has gone
                            continue
                        if isinstance(result, Exception):
                            asker.set_exception(result)
                        else:
                            asker.set_result(result)
        finally:
            self._running = None
            self._give_up()

    def _give_up(self) -> None:
        """Refuse whoever still waits, which is nobody unless the run was broken off."""
        for asker in [asker for askers in self._askers.values() for asker in askers if not asker.done()]:
            asker.set_exception(RefusedError(503, "the service was broken off; try again"))
        self._askers.clear()
        self._queue.clear()

    def _take(self) -> list[Question]:
        """The next batch; a question that nobody waits for any more is dropped."""
        batch: list[Question] = []
        while self._queue and len(batch) < self._together:
            question = self._queue.popleft()
            if all(asker.done() for asker in self._askers[question]):
                del self._askers[question]
            else:
                batch.append(question)
        return batch

    async def _results(self, batch: list[Question]) -> Sequence[Result | Exception]:
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._work, batch)
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results of {len(batch)} questions")
            return results
        except Exception as error:
            return [error] * len(batch)


def apart(work: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]) -> list[Result | Exception]:
    """Do all in one go; if that fails, one by one, so that a bad item does not fail its neighbours."""
    try:
        return list(work(items)) if items else []
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [result for item in items for result in apart(work, [item])]
