import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.serve.batching import Batcher, apart
from diptych.serve.cache import Cache
from diptych.serve.errors import RefusedError


class Work:
    """Doubles numbers, once it may; a negative one is its own mistake, and a thousand breaks everything."""

    def __init__(self):
        self.batches = []
        self.may = threading.Event()

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        assert self.may.wait(10)
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
            work.may.set()
            batcher.close()

    return asyncio.run(main()), work.batches


async def begun(work):
    while not work.batches:
        await asyncio.sleep(0.001)


def test_who_comes_while_it_works_goes_together():
    async def story(batcher, work):
        first = asyncio.create_task(batcher.ask(1))
        await begun(work)  # it did not wait for company
        others = [asyncio.create_task(batcher.ask(number)) for number in (2, 3, 4, 5, 6)]
        await asyncio.sleep(0)
        work.may.set()
        return await asyncio.gather(first, *others)

    results, batches = run(story, together=4)
    assert results == [2, 4, 6, 8, 10, 12]
    assert batches == [[1], [2, 3, 4, 5], [6]]


def test_the_same_question_is_worked_on_once():
    async def story(batcher, work):
        tasks = [asyncio.create_task(batcher.ask(number)) for number in (1, 2, 1, 2)]
        await begun(work)
        tasks.append(asyncio.create_task(batcher.ask(1)))  # while it is worked on
        await asyncio.sleep(0)
        work.may.set()
        results = await asyncio.gather(*tasks)
        return [*results, await batcher.ask(1)]  # a new question, now that the old one is answered

    results, batches = run(story)
    assert results == [2, 4, 2, 4, 2, 2]
    assert batches == [[1, 2], [1]]


def test_a_mistake_is_of_one_alone_and_a_broken_batch_is_not_the_end():
    async def story(batcher, work):
        work.may.set()
        mixed = await asyncio.gather(*(batcher.ask(number) for number in (1, -2, 3)), return_exceptions=True)
        broken = await asyncio.gather(*(batcher.ask(number) for number in (1000, 4)), return_exceptions=True)
        return mixed, broken, await batcher.ask(5)

    (mixed, broken, after), _ = run(story)
    assert [mixed[0], mixed[2], after] == [2, 6, 10]
    assert isinstance(mixed[1], ValueError)
    assert all(isinstance(each, MemoryError) for each in broken)


def test_nobody_waits_for_ever_for_what_is_broken_off():
    async def story(batcher, work):
        batcher._work = lambda _: []  # a fault of the work: too few results
        few = await asyncio.gather(batcher.ask(1), batcher.ask(2), return_exceptions=True)
        batcher._work = work
        asked = [asyncio.create_task(batcher.ask(number)) for number in (3, 4, 5)]
        await begun(work)
        batcher._running.cancel()
        broken = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
        work.may.set()
        return few, broken, await batcher.ask(3)

    (few, broken, after), batches = run(story, together=2)
    assert [type(error) for error in few] == [RuntimeError] * 2
    assert [(type(error), error.status) for error in broken] == [(RefusedError, 503)] * 3
    assert (after, batches) == (6, [[3, 4], [3]])


def test_who_goes_away_holds_nobody_up():
    async def story(batcher, work):
        first = asyncio.create_task(batcher.ask(1))
        await begun(work)
        gone, stays = asyncio.create_task(batcher.ask(2)), asyncio.create_task(batcher.ask(3))
        await asyncio.sleep(0)
        gone.cancel()
        first.cancel()  # of the batch that is worked on
        await asyncio.sleep(0)
        work.may.set()
        return await stays

    result, batches = run(story)
    assert result == 6
    assert batches == [[1], [3]]  # nobody wants 2 any more


def test_too_many_are_refused_at_once():
    async def story(batcher, work):
        first = asyncio.create_task(batcher.ask(1))
        await begun(work)
        waiting = [asyncio.create_task(batcher.ask(number)) for number in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="2 questions wait already") as refused:
            await batcher.ask(4)
        assert refused.value.status == 503
        twin = asyncio.create_task(batcher.ask(3))  # costs nothing
        await asyncio.sleep(0)
        work.may.set()
        return await asyncio.gather(first, *waiting, twin)

    assert run(story, waiting=2)[0] == [2, 4, 6, 6]


@given(st.lists(st.integers(-3, 3)))
def test_apart_is_each_by_itself(numbers):
    def inverses(some):
        return [1 / number for number in some]

    found = apart(inverses, numbers)
    assert len(found) == len(numbers)
    for number, result in zip(numbers, found, strict=True):
        assert isinstance(result, ZeroDivisionError) if number == 0 else result == 1 / number


def test_a_cache_forgets_what_was_not_used_for_longest():
    cache = Cache(kept=2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    assert len(cache) == 2
