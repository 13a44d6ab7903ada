"""What training says while it runs, and to whom: nobody, or a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Watcher(Protocol):
    """Is told of every step, epoch and event of a training."""

    def stage(self, number: int, of: int, steps: int, done: int) -> None:
        """A stage of so many steps begins, so many of them done before."""
        ...

    def step(self, epoch: int, loss: float, pairs_per_second: float) -> None:
        """A step is done; the loss is the epoch's mean a pair so far."""
        ...

    def preparing(self, what: str, done: int, total: int) -> None:
        """So much is done of what a stage needs first: features of images, mined lists."""
        ...

    def say(self, message: str, style: str = "") -> None:
        """Something a person should read."""
        ...


class Silent:
    """Says nothing."""

    def stage(self, number: int, of: int, steps: int, done: int) -> None:
        """Nothing."""

    def step(self, epoch: int, loss: float, pairs_per_second: float) -> None:
        """Nothing."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Nothing."""

    def say(self, message: str, style: str = "") -> None:
        """Nothing."""


@dataclass
class Bar:
    """A progress bar with loss, pairs a second and the time left; use as a context."""

    console: Console

    def __enter__(self) -> Bar:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,  # a file wants lines, not a bar
        )
        self._progress.start()
        self._first: TaskID | None = None  # what has to be done before a stage
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stage(self, number: int, of: int, steps: int, done: int) -> None:
        """Start a bar for the stage."""
        self._task = self._progress.add_task(f"stage {number}/{of}", total=steps, completed=done, figures="")

    def step(self, epoch: int, loss: float, pairs_per_second: float) -> None:
        """Move the bar."""
        figures = f"epoch {epoch}  loss {loss:.4f}  {pairs_per_second:,.0f} pairs/s"
        self._progress.update(self._task, advance=1, figures=figures)

    def preparing(self, what: str, done: int, total: int) -> None:
        """Show a bar of its own until all is done."""
        if self._first is None:
            if done == total:  # the end is sometimes told twice
                return
            self._first = self._progress.add_task(what, total=total, figures="")
            if not self.console.is_terminal:
                self.say(f"{what}: {total:,} to do")
        self._progress.update(self._first, completed=done, total=total)
        if done == total:
            self._progress.remove_task(self._first)
            self._first = None

    def say(self, message: str, style: str = "") -> None:
        """Print above the bar, as it is: file names may hold anything."""
        self._progress.console.print(message, style=style, highlight=False, markup=False, soft_wrap=True)
