"""Shows the tasks of `diptych reproduce` on the terminal: one line per running task, and how many are done."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from typing_extensions import Self

from diptych.cli.console import print_note, printable, stderr
from diptych.reproduction.jobs import Display
from diptych.reproduction.tasks import Task


class TaskDisplay(Display):
    """A bar over all tasks and a line for each that is running; a file gets a line when a task begins or ends."""

    def __init__(self, total: int) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=stderr,
            disable=not stderr.is_terminal,
        )
        self._total, self._done = total, 0
        self._all = self._progress.add_task("tasks", total=total, text="")
        self._lines: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, task: Task) -> None:
        """Show a line for the task."""
        self._lines[task.id] = self._progress.add_task(printable(task.title), total=None, text="")
        if not stderr.is_terminal:
            print_note(f"{task.title}: begins")

    def report(self, task: Task, text: str) -> None:
        """Show how far the task is."""
        self._progress.update(self._lines[task.id], text=printable(text))

    def end(self, task: Task, error: str | None) -> None:
        """Remove the line, and keep one that says how it ended."""
        self._done += 1
        self._progress.update(self._all, completed=self._done)
        self._progress.remove_task(self._lines.pop(task.id))
        done = f"{self._done} of {self._total}: {task.title}"
        self._progress.console.print(
            printable(done if error is None else f"{done}: failed, {error}"),
            style="" if error is None else "red",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
