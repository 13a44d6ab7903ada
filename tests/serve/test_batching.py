import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.serve.batching import Batcher, isolate_failures
from diptych.serve.errors import RequestError


class Work:
    """Doubles numbers once it is released; a negative number is an error, and a thousand breaks the whole batch."""

    def __init__(self):
        self.batches = []
        self.released = threading.Event()

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        assert self.released.wait(10)
        if 1000 in numbers:
            raise MemoryError("broken")
        return [ValueError(number) if number < 0 else 2 * number for number in numbers]


def run(story, **limits):
    work = Work()

    async def main():
        batcher = Batcher(work, **limits)
        try:
            return await story(batcher, work)
        finally:
            work.released.set()
            batcher.close()

    return asyncio.run(main()), work.batches


async def begun(work):
    while not work.batches:
        await asyncio.sleep(0.001)


def test_queries_that_arrive_meanwhile_form_the_next_batch():
    async def story(batcher, work):
        first = asyncio.create_task(batcher.submit(1))
        await begun(work)  # it does not wait for others
        others = [asyncio.create_task(batcher.submit(number)) for number in (2, 3, 4, 5, 6)]
        await asyncio.sleep(0)
        work.released.set()
        return await asyncio.gather(first, *others)

    results, batches = run(story, batch_size=4)
    assert results == [2, 4, 6, 8, 10, 12]
    assert batches == [[1], [2, 3, 4, 5], [6]]


def test_equal_queries_are_processed_once():
    async def story(batcher, work):
        tasks = [asyncio.create_task(batcher.submit(number)) for number in (1, 2, 1, 2)]
        await begun(work)
        tasks.append(asyncio.create_task(batcher.submit(1)))  # while it is being processed
        await asyncio.sleep(0)
        work.released.set()
        results = await asyncio.gather(*tasks)
        return [*results, await batcher.submit(1)]  # processed again, since the first is done

    results, batches = run(story)
    assert results == [2, 4, 2, 4, 2, 2]
    assert batches == [[1, 2], [1]]


def test_an_error_affects_one_query_and_a_broken_batch_one_batch():
    async def story(batcher, work):
        work.released.set()
        mixed = await asyncio.gather(*(batcher.submit(number) for number in (1, -2, 3)), return_exceptions=True)
        broken = await asyncio.gather(*(batcher.submit(number) for number in (1000, 4)), return_exceptions=True)
        return mixed, broken, await batcher.submit(5)

    (mixed, broken, after), _ = run(story)
    assert [mixed[0], mixed[2], after] == [2, 6, 10]
    assert isinstance(mixed[1], ValueError)
    assert all(isinstance(each, MemoryError) for each in broken)


def test_a_cancelled_run_fails_its_queries():
    async def story(batcher, work):
        batcher._process = lambda _: []  # too few results
        few = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
        batcher._process = work
        asked = [asyncio.create_task(batcher.submit(number)) for number in (3, 4, 5)]
        await begun(work)
        batcher._running.cancel()
        broken = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
        work.released.set()
        return few, broken, await batcher.submit(3)

    (few, broken, after), batches = run(story, batch_size=2)
    assert [type(error) for error in few] == [RuntimeError] * 2
    assert [(type(error), error.status) for error in broken] == [(RequestError, 503)] * 3
    assert (after, batches) == (6, [[3, 4], [3]])


def test_disconnected_clients_do_not_delay_others():
    async def story(batcher, work):
        first = asyncio.create_task(batcher.submit(1))
        await begun(work)
        gone, stays = asyncio.create_task(batcher.submit(2)), asyncio.create_task(batcher.submit(3))
        await asyncio.sleep(0)
        gone.cancel()
        first.cancel()  # of the batch that is being processed
        await asyncio.sleep(0)
        work.released.set()
        return await stays

    result, batches = run(story)
    assert result == 6
    assert batches == [[1], [3]]  # nobody waits for 2


def test_too_many_pending_queries_are_refused():
    async def story(batcher, work):
        first = asyncio.create_task(batcher.submit(1))
        await begun(work)
        waiting = [asyncio.create_task(batcher.submit(number)) for number in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="2 queries are already waiting") as refused:
            await batcher.submit(4)
        assert refused.value.status == 503
        twin = asyncio.create_task(batcher.submit(3))  # equal to a pending query
        await asyncio.sleep(0)
        work.released.set()
        return await asyncio.gather(first, *waiting, twin)

    assert run(story, queue_limit=2)[0] == [2, 4, 6, 6]


@given(st.lists(st.integers(-3, 3)))
def test_isolated_failures_equal_processing_one_by_one(numbers):
    def inverses(some):
        return [1 / number for number in some]

    found = isolate_failures(inverses, numbers)
    assert len(found) == len(numbers)
    for number, result in zip(numbers, found, strict=True):
        assert isinstance(result, ZeroDivisionError) if number == 0 else result == 1 / number
