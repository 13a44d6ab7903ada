"""Performs the tasks of a plan, one after another in this process, or several side by side in processes of their own.

A task that fails ends neither the others nor the plan: those that need it are left out, and the reason is reported.
Weights that no later task reads are deleted, because a record is enough.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from diptych.data.open import open_corpus
from diptych.data.origin import Origin
from diptych.data.splitting import SplitRule, apply_rule
from diptych.errors import DiptychError, RunError
from diptych.machine import interrupt_event, keep_freed_memory
from diptych.reproduction.plan import Plan
from diptych.reproduction.tasks import OutOfTimeError, Task, Workplace

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_POLL = 0.2  # seconds within which Ctrl-C is noticed
_GRACE = 60.0  # seconds that workers have to save what they are doing


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


@dataclass
class _Queue:
    """The tasks of a plan that can be performed next."""

    plan: Plan
    outcome: Outcome = field(default_factory=Outcome)
    running: set[str] = field(default_factory=set)

    def next(self) -> Task | None:
        """The first task whose needs are done."""
        for task in self.plan.tasks.values():
            if task.id in self.outcome.done | self.outcome.failed.keys() | self.running:
                continue
            failed = next((need for need in task.needs if need in self.outcome.failed), None)
            if failed is not None:
                self.outcome.failed[task.id] = self.outcome.failed[failed]
            elif all(need in self.outcome.done or need not in self.plan.tasks for need in task.needs):
                return task
        return None


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
    queue = _Queue(plan)
    cleaner = _Cleaner(plan, place.runs, keep)
    if jobs == 1:
        _in_this_process(queue, place, display, cleaner)
    else:
        _in_processes(queue, place, display, cleaner, jobs)
    return queue.outcome


@dataclass
class _Cleaner:
    """Deletes the weights of runs that no task needs any more."""

    plan: Plan
    runs: Path
    keep: Callable[[str], bool]

    def clean(self, done: set[str]) -> None:
        needed = self.plan.needed_runs(done)
        for key in {task_id.partition(" ")[2] for task_id in done if task_id.startswith("train ")} - needed:
            if not self.keep(key):
                shutil.rmtree(self.runs / key, ignore_errors=True)


def _in_this_process(queue: _Queue, place: Workplace, display: Display, cleaner: _Cleaner) -> None:
    while (task := queue.next()) is not None:
        if _is_over(place):
            queue.outcome.is_out_of_time = True
            return
        display.begin(task)
        reporting = replace(place, report=partial(display.report, task))
        error = None
        try:
            task.perform(reporting)
        except OutOfTimeError:
            queue.outcome.is_out_of_time = True
            return
        except DiptychError as reason:
            error = str(reason)
        _note_end(queue, task, error, display, cleaner)


def _note_end(queue: _Queue, task: Task, error: str | None, display: Display, cleaner: _Cleaner) -> None:
    if error is None:
        queue.outcome.done.add(task.id)
        cleaner.clean(queue.outcome.done)
    else:
        queue.outcome.failed[task.id] = error
    display.end(task, error)


def _is_over(place: Workplace) -> bool:
    return place.deadline is not None and time.monotonic() >= place.deadline


@dataclass(frozen=True)
class _WorkerOptions:
    """What a worker needs to make its own workplace; `seconds` is the time that is left."""

    into: Path
    address: str
    rule: SplitRule | None
    stores: Path
    device: str
    seconds: float | None


@dataclass(frozen=True)
class _Said:
    """What a worker says about its task."""

    what: str  # "report", "done", "failed", "out of time" or "stopped"
    text: str = ""


class _Worker:
    """A process that performs tasks, and the connection to it."""

    def __init__(self, options: _WorkerOptions) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(options, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        """Let the worker perform a task."""
        self.task = task
        self.connection.send(task)


def _in_processes(queue: _Queue, place: Workplace, display: Display, cleaner: _Cleaner, jobs: int) -> None:
    origin = Origin.of(place.corpus, "")
    if origin.address is None:
        raise RunError(
            f"{place.corpus.name}: a corpus made in Python cannot be opened by other processes; use --jobs 1"
        )
    left = None if place.deadline is None else max(0.0, place.deadline - time.monotonic())
    options = _WorkerOptions(place.into, origin.address, origin.rule, place.stores, place.device, left)
    with interrupt_event() as asked, _one_thread_each():
        workers: list[_Worker] = []
        try:
            _schedule(queue, place, display, cleaner, workers, lambda: _Worker(options), jobs, asked)
        finally:
            _stop(workers)
    if asked.is_set():
        raise KeyboardInterrupt


def _schedule(  # noqa: PLR0917 (the parts of one loop)
    queue: _Queue,
    place: Workplace,
    display: Display,
    cleaner: _Cleaner,
    workers: list[_Worker],
    start: Callable[[], _Worker],
    jobs: int,
    asked: threading.Event,
) -> None:
    """Give every free worker the next task, and receive what workers say, until nothing is left to do."""
    while not asked.is_set():
        if _is_over(place):
            queue.outcome.is_out_of_time = True
        while not queue.outcome.is_out_of_time and len(queue.running) < jobs and (task := queue.next()) is not None:
            free = next((worker for worker in workers if worker.task is None), None)
            if free is None:
                free = start()
                workers.append(free)
            queue.running.add(task.id)
            display.begin(task)
            free.give(task)
        busy = [worker for worker in workers if worker.task is not None]
        if not busy:
            return
        for connection in wait([worker.connection for worker in busy], _POLL):
            worker = next(worker for worker in busy if worker.connection is connection)
            _receive(worker, queue, display, cleaner)


def _receive(worker: _Worker, queue: _Queue, display: Display, cleaner: _Cleaner) -> None:
    task = worker.task
    assert task is not None, "only busy workers are listened to"
    try:
        said: _Said = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(_GRACE)
        said = _Said("failed", f"its process ended with status {worker.process.exitcode}; is there enough memory?")
        worker.connection.close()
    if said.what == "report":
        display.report(task, said.text)
        return
    worker.task = None
    queue.running.discard(task.id)
    if said.what in ("done", "failed"):
        _note_end(queue, task, said.text if said.what == "failed" else None, display, cleaner)
    else:
        queue.outcome.is_out_of_time = True


def _stop(workers: Sequence[_Worker]) -> None:
    """Let workers save what they are doing, and end them."""
    for worker in workers:
        if worker.task is not None and worker.process.pid is not None and worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGINT)
        with suppress(OSError):
            worker.connection.send(None)
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started here compute with one thread, so that they do not take each other's cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, in the workers
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _work(options: _WorkerOptions, connection: Connection) -> None:
    """The main function of a worker."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches it through the process that has started it, and so once
    keep_freed_memory()
    corpus = open_corpus(options.address)
    if options.rule is not None:
        corpus = apply_rule(corpus, options.rule)
    deadline = None if options.seconds is None else time.monotonic() + options.seconds
    place = Workplace(
        options.into,
        corpus,
        options.stores,
        options.device,
        deadline=deadline,
        report=lambda text: connection.send(_Said("report", text)),
    )
    while True:
        try:
            task: Task | None = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if task is None:
            return
        connection.send(_perform(task, place))


def _perform(task: Task, place: Workplace) -> _Said:
    try:
        task.perform(place)
    except OutOfTimeError:
        return _Said("out of time")
    except KeyboardInterrupt:
        return _Said("stopped")
    except DiptychError as error:
        return _Said("failed", str(error))
    return _Said("done")
