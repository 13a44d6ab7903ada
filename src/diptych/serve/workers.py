"""Serves indexes with several processes that share one listening socket.

Each worker opens the indexes and the model itself, and maps the vectors from a file that all of them share. The first
one starts alone, so that an error at the start is said once and files beside the index are written once. A worker that
dies is started again; if workers keep dying, the service ends. If this process dies, its workers end as well.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, TypeAlias

from diptych.errors import DiptychError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from diptych.index.preselection import Codes

_POLL = 0.2  # seconds within which a signal is noticed
_GRACE = 10.0  # seconds that workers have to finish their requests
_DEATHS, _WITHIN = 5, 60.0  # per worker, within so many seconds: the service ends
_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # with it, the metrics of all workers are added up

Tell: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class ServiceOptions:
    """What every worker serves: indexes by their addresses, with their models or that of `run`."""

    indexes: tuple[str, ...]
    run: str | None = None
    device: str = "auto"
    codes: Codes = "auto"
    hosts: tuple[str, ...] = ()
    allowed_code: tuple[str, ...] = ()
    download: bool = False


@dataclass(frozen=True)
class Ready:
    """What a worker says when it accepts connections: the names of its indexes, and notes for people."""

    names: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Failed:
    message: str


class _Worker:
    """A process that serves, and the connection to it."""

    def __init__(self, number: int, options: ServiceOptions, listening: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of threads that it does not have
        self.number = number
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=_serve, args=(options, listening, theirs), name=f"diptych-worker-{number}", daemon=True
        )
        self.process.start()
        theirs.close()

    def receive(self) -> Ready | None:
        """What the worker said when it was ready; None if it died before. A DiptychError is what has prevented it."""
        try:
            said = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(said, _Failed):
            raise DiptychError(said.message)
        assert isinstance(said, Ready)
        return said

    def describe_end(self) -> str:
        """How the process ended."""
        self.process.join(_GRACE)
        code = self.process.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return f"worker {self.number} (process {self.process.pid}) ended unexpectedly: {how}"


def serve_with_workers(
    options: ServiceOptions,
    count: int,
    listening: socket.socket,
    stop: threading.Event,
    *,
    on_ready: Callable[[Ready], None],
    tell: Tell,
) -> None:
    """Serve until `stop` is set; raises a DiptychError if the workers cannot be started, or keep dying."""
    workers: list[_Worker] = []
    with _shared_metrics():
        try:
            workers.append(_Worker(1, options, listening))
            ready = _wait_for_first(workers[0], stop)
            workers += [_Worker(number, options, listening) for number in range(2, count + 1) if ready]
            if ready is not None:
                on_ready(ready)
                _keep_running(workers, options, listening, stop, tell)
        finally:
            _end(workers)


def _wait_for_first(worker: _Worker, stop: threading.Event) -> Ready | None:
    """What the first worker says when it is ready; None if the service was stopped before."""
    while not stop.is_set():
        if wait([worker.connection], _POLL):
            said = worker.receive()
            if said is None:
                raise DiptychError(worker.describe_end())
            return said
    return None


def _keep_running(
    workers: list[_Worker], options: ServiceOptions, listening: socket.socket, stop: threading.Event, tell: Tell
) -> None:
    """Start workers that have died again, until `stop` is set."""
    deaths: deque[float] = deque(maxlen=_DEATHS * len(workers))
    while not stop.is_set():
        told = set(wait([worker.connection for worker in workers], _POLL))  # also when a worker has died
        for place, worker in enumerate(workers):
            if worker.connection not in told or stop.is_set():
                continue
            try:
                if worker.receive() is not None:
                    continue
                reason = worker.describe_end()
            except DiptychError as error:
                reason = f"worker {worker.number}: {error}"
            deaths.append(time.monotonic())
            if len(deaths) == deaths.maxlen and deaths[-1] - deaths[0] < _WITHIN:
                raise DiptychError(f"{reason}; workers have died {len(deaths)} times within a minute, so all end")
            tell(f"{reason}; it is started again")
            _end([worker])
            workers[place] = _Worker(worker.number, options, listening)


def _end(workers: Sequence[_Worker]) -> None:
    """End workers after their present requests, or at once if that takes too long."""
    for worker in workers:
        worker.connection.close()
        worker.process.terminate()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()


@contextmanager
def _shared_metrics() -> Iterator[None]:
    """A folder in which workers count, so that each of them can answer /metrics for all."""
    before = os.environ.get(_METRICS)
    with tempfile.TemporaryDirectory(prefix="diptych-metrics-") as folder:
        os.environ[_METRICS] = folder  # read when prometheus_client is imported, in the workers
        try:
            yield
        finally:
            if before is None:
                del os.environ[_METRICS]
            else:
                os.environ[_METRICS] = before


def _serve(options: ServiceOptions, listening: socket.socket, connection: Connection) -> None:
    """The main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    from diptych.machine import keep_freed_memory

    keep_freed_memory()
    try:
        _open_and_run(options, listening, connection)
    except DiptychError as error:
        _say(connection, _Failed(str(error)))


def _open_and_run(options: ServiceOptions, listening: socket.socket, connection: Connection) -> None:
    from diptych import plugins
    from diptych.models.pretrained_pairs.hub import downloads
    from diptych.serve.app import create_app
    from diptych.serve.startup import make_server, open_indexes, warm_up

    plugins.allow_code(*options.allowed_code)
    with downloads(options.download):
        searchers = open_indexes(options.indexes, options.run, options.device, map_above=0, codes=options.codes)
    warm_up(searchers)
    notes = dict.fromkeys(note for searcher in searchers.values() for note in searcher.notes())
    ready = Ready(tuple(searchers), tuple(notes))
    server = make_server(create_app(searchers, options.hosts), shares=lambda: _say(connection, ready))
    gc.freeze()
    server.run(sockets=[listening])


def _say(connection: Connection, what: Ready | _Failed) -> None:
    with suppress(OSError):  # the other side is gone, and this process ends, too
        connection.send(what)


def _end_with_parent(connection: Connection) -> None:
    """End this process when the one that started it is gone, whose side of the connection is then closed."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)  # while it serves: after its present requests
