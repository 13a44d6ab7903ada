"""The callback through which long-running functions report their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

ProgressCallback = Callable[[int, int], None]  # called with the number of items done and the total
ProgressDisplay = Callable[[str], AbstractContextManager[ProgressCallback]]  # opens a display with this title


@contextmanager
def no_progress(_title: str) -> Iterator[ProgressCallback]:
    """A ProgressDisplay that shows nothing."""
    yield lambda _done, _total: None
