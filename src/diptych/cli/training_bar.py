"""The progress bar of a training on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@dataclass
class TrainingBar:
    """A `TrainingCallback` that shows loss, pairs per second and the time left; use it as a context manager."""

    console: Console

    def __enter__(self) -> TrainingBar:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,  # a file gets messages only, no bar
        )
        self._progress.start()
        self._preparation: TaskID | None = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def on_stage(self, number: int, stages: int, steps: int, done: int) -> None:
        """Start a bar for the stage."""
        self._stage = self._progress.add_task(f"stage {number}/{stages}", total=steps, completed=done, figures="")

    def on_step(self, epoch: int, loss: float, pairs_per_second: float) -> None:
        """Advance the bar."""
        figures = f"epoch {epoch}  loss {loss:.4f}  {pairs_per_second:,.0f} pairs/s"
        self._progress.update(self._stage, advance=1, figures=figures)

    def on_preparation(self, what: str, done: int, total: int) -> None:
        """Show a separate bar until the preparation is complete."""
        if self._preparation is None:
            if done == total:  # the end may be reported twice
                return
            self._preparation = self._progress.add_task(what, total=total, figures="")
            if not self.console.is_terminal:
                self.message(f"{what}: {total:,} to do")
        self._progress.update(self._preparation, completed=done, total=total)
        if done == total:
            self._progress.remove_task(self._preparation)
            self._preparation = None

    def message(self, text: str, style: str = "") -> None:
        """Print above the bar, without markup: file names may contain anything."""
        self._progress.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
