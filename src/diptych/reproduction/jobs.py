"""Performs the tasks of a plan, one after another in this process, or several side by side in processes of their own.

A task that fails ends neither the others nor the plan: those that need it are left out, and the reason is reported.
Weights that no later task reads are deleted, because a record is enough.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from diptych.errors import DiptychError
from diptych.machine import interrupt_event
from diptych.reproduction.plan import Plan
from diptych.reproduction.tasks import OutOfTimeError, Task, Workplace
from diptych.reproduction.workers import WorkerPool

_POLL = 0.2  # seconds within which Ctrl-C is noticed


class Display(Protocol):
    """Is told which tasks begin, go on and end."""

    def begin(self, task: Task) -> None:
        """A task begins."""

    def report(self, task: Task, text: str) -> None:
        """A task has made progress."""

    def end(self, task: Task, error: str | None) -> None:
        """A task is finished, or has failed with an error."""


@dataclass
class Outcome:
    """What became of the tasks: the ids of those that are done, and why others failed."""

    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    is_out_of_time: bool = False


def perform(
    plan: Plan,
    place: Workplace,
    display: Display,
    *,
    jobs: int = 1,
    keep: Callable[[str], bool] = lambda _key: False,
) -> Outcome:
    """Perform a plan until it is finished or the deadline of the place has passed; `keep` says which weights stay.

    KeyboardInterrupt is raised once everything is saved; the same plan then continues.
    """
    progress = _Progress(plan, place, display, keep)
    if jobs == 1:
        _in_this_process(progress)
    else:
        _in_processes(progress, jobs)
    return progress.outcome


@dataclass
class _Progress:
    """How far a plan is: what can begin next, and what became of the rest."""

    plan: Plan
    place: Workplace
    display: Display
    keep: Callable[[str], bool]
    outcome: Outcome = field(default_factory=Outcome)
    running: set[str] = field(default_factory=set)

    def next(self) -> Task | None:
        """The first task whose needs are done; None if nothing can begin, or the deadline has passed."""
        if self.place.deadline is not None and time.monotonic() >= self.place.deadline:
            self.outcome.is_out_of_time = True
        if self.outcome.is_out_of_time:
            return None
        for task in self.plan.tasks.values():
            if task.id in self.outcome.done | self.outcome.failed.keys() | self.running:
                continue
            failed = next((need for need in task.needs if need in self.outcome.failed), None)
            if failed is not None:
                self.outcome.failed[task.id] = self.outcome.failed[failed]
            elif all(need in self.outcome.done or need not in self.plan.tasks for need in task.needs):
                return task
        return None

    def begin(self, task: Task) -> None:
        """A task begins."""
        self.running.add(task.id)
        self.display.begin(task)

    def end(self, task: Task, error: str | None) -> None:
        """A task is done or has failed."""
        self.running.discard(task.id)
        if error is None:
            self.outcome.done.add(task.id)
            self._delete_weights()
        else:
            self.outcome.failed[task.id] = error
        self.display.end(task, error)

    def stop(self, task: Task) -> None:
        """A task was stopped before its end, because the time has passed."""
        self.running.discard(task.id)
        self.outcome.is_out_of_time = True

    def _delete_weights(self) -> None:
        """Delete the runs that no task reads any more."""
        trained = {task.partition(" ")[2] for task in self.outcome.done if task.startswith("train ")}
        for key in trained - self.plan.needed_runs(self.outcome.done):
            if not self.keep(key):
                shutil.rmtree(self.place.runs / key, ignore_errors=True)


def _in_this_process(progress: _Progress) -> None:
    while (task := progress.next()) is not None:
        progress.begin(task)
        error = None
        try:
            task.perform(replace(progress.place, report=partial(progress.display.report, task)))
        except OutOfTimeError:
            progress.stop(task)
            return
        except DiptychError as reason:
            error = str(reason)
        progress.end(task, error)


def _in_processes(progress: _Progress, jobs: int) -> None:
    pool = WorkerPool(progress.place, jobs)
    with interrupt_event() as asked:
        try:
            while not asked.is_set():
                while pool.has_room and (task := progress.next()) is not None:
                    progress.begin(task)
                    pool.give(task)
                if not pool.busy:
                    return
                for task, said in pool.receive(_POLL):
                    if said.what == "report":
                        progress.display.report(task, said.text)
                    elif said.what == "stopped":
                        progress.stop(task)
                    else:
                        progress.end(task, said.text if said.what == "failed" else None)
        finally:
            pool.close()
    raise KeyboardInterrupt
