"""Map a function over items with threads that read ahead, keeping the order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def read_ahead(read: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield `read(item)` for each item in order, with `workers` threads working ahead; 0 reads in the calling thread.

    Threads rather than processes: decoding releases the interpreter lock, Ctrl-C stays simple and nothing is copied.
    """
    if workers == 0:
        yield from map(read, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Any] = deque()
        try:
            for item in items:
                pending.append(pool.submit(read, item))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
