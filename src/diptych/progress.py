"""The callback through which long-running functions report their progress, and a bar that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task

ProgressCallback = Callable[[int, int], None]  # called with the number of items done and the total
ProgressDisplay = Callable[[str], AbstractContextManager[ProgressCallback]]  # opens a display with this title


@contextmanager
def no_progress(_title: str) -> Iterator[ProgressCallback]:
    """A ProgressDisplay that shows nothing."""
    yield lambda _done, _total: None


def open_progress(
    progress: bool | ProgressCallback | None, title: str
) -> AbstractContextManager[ProgressCallback | None]:
    """The callback that a user asked for: a bar for True, the user's own, or none."""
    return progress_bar(title) if progress is True else nullcontext(progress or None)


@contextmanager
def progress_bar(title: str, console: Console | None = None, unit: str = "") -> Iterator[ProgressCallback]:
    """A bar on a terminal or in a notebook, which disappears when it is done; by default on stderr.

    With a unit, it also shows how many of them are done per second.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> str:
            return f"{task.speed:,.1f} {unit}/s" if task.speed else ""

    console = Console(stderr=True) if console is None else console
    rate = (RateColumn(),) if unit else ()
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), *rate, TimeRemainingColumn())
    is_shown = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
