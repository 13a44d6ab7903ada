"""Processes that perform tasks side by side, each with one thread.

A worker opens the corpus itself and is given one task after another. Ctrl-C reaches it only through the process that
has started it: it saves what it is doing and ends. If that process dies, its workers do the same.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from diptych.data.open import open_corpus
from diptych.data.origin import Origin
from diptych.data.splitting import SplitRule, apply_rule
from diptych.errors import DiptychError, RunError
from diptych.machine import keep_freed_memory
from diptych.reproduction.tasks import OutOfTimeError, Task, Workplace

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_GRACE = 60.0  # seconds that workers have to save what they are doing


@dataclass(frozen=True)
class Said:
    """What a worker says about its task: a report, or how it ended, with the reason if it failed."""

    what: Literal["report", "done", "failed", "stopped"]
    text: str = ""


@dataclass(frozen=True)
class _WorkerOptions:
    """What a worker needs to make its own workplace; `seconds` is the time that is left."""

    into: Path
    address: str
    rule: SplitRule | None
    stores: Path
    device: str
    seconds: float | None


class _Worker:
    """A process that performs tasks, the connection to it, and its present task."""

    def __init__(self, options: _WorkerOptions) -> None:
        context = get_context("spawn")  # a fork would copy the locks of threads that it does not have
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(options, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None


class WorkerPool:
    """Up to `count` workers; one is started when a task needs it."""

    def __init__(self, place: Workplace, count: int) -> None:
        origin = Origin.of(place.corpus, "")
        if origin.address is None:
            raise RunError(
                f"{place.corpus.name}: a corpus made in Python cannot be opened by other processes; use --jobs 1"
            )
        left = None if place.deadline is None else max(0.0, place.deadline - time.monotonic())
        self._options = _WorkerOptions(place.into, origin.address, origin.rule, place.stores, place.device, left)
        self._count = count
        self._workers: list[_Worker] = []

    @property
    def busy(self) -> int:
        """How many workers have a task."""
        return sum(worker.task is not None for worker in self._workers)

    @property
    def has_room(self) -> bool:
        """Whether another task can begin."""
        return self.busy < self._count

    def give(self, task: Task) -> None:
        """Let a free worker perform a task."""
        worker = next((worker for worker in self._workers if worker.task is None), None)
        if worker is None:
            with _one_thread():
                worker = _Worker(self._options)
            self._workers.append(worker)
        worker.task = task
        worker.connection.send(task)

    def receive(self, timeout: float) -> Iterator[tuple[Task, Said]]:
        """What busy workers say within so many seconds."""
        busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
        for connection in wait(list(busy), timeout):
            assert isinstance(connection, Connection)
            worker = busy[connection]
            task = worker.task
            assert task is not None, "it is busy"
            said = self._said(worker)
            if said.what != "report":
                worker.task = None
            yield task, said

    def _said(self, worker: _Worker) -> Said:
        """What a worker says; a process that has died says that its task has failed."""
        try:
            said: Said = worker.connection.recv()
            return said
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.process.join(_GRACE)
            return Said("failed", f"its process ended with status {worker.process.exitcode}; was there enough memory?")

    def close(self) -> None:
        """Let workers save what they are doing, and end them."""
        for worker in self._workers:
            if worker.task is not None and worker.process.pid is not None and worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGINT)
            with suppress(OSError):
                worker.connection.send(None)
        deadline = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()


@contextmanager
def _one_thread() -> Iterator[None]:
    """A process that is started here computes with one thread, so that workers do not take each other's cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, in the worker
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
        os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    corpus = open_corpus(options.address)
    if options.rule is not None:
        corpus = apply_rule(corpus, options.rule)
    place = Workplace(
        options.into,
        corpus,
        options.stores,
        options.device,
        deadline=None if options.seconds is None else time.monotonic() + options.seconds,
        report=lambda text: _say(connection, Said("report", text)),
    )
    with suppress(EOFError, KeyboardInterrupt):
        while (task := connection.recv()) is not None:
            _say(connection, perform_task(task, place))


def perform_task(task: Task, place: Workplace) -> Said:
    """Perform a task; an error that Diptych raises on purpose is what the task ends with."""
    try:
        task.perform(place)
    except (OutOfTimeError, KeyboardInterrupt):
        return Said("stopped")
    except DiptychError as error:
        return Said("failed", str(error))
    return Said("done")


def _say(connection: Connection, said: Said) -> None:
    with suppress(OSError):  # the other side is gone, and this process will end, too
        connection.send(said)


def _end_with_parent() -> None:
    """Save and end when the process that has started this one is gone."""
    parent = parent_process()
    assert parent is not None, "this is a worker"
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)
