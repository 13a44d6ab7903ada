"""What encodes the images of an index: the process that writes it, or several others, each with the model.

Batches are the same however many processes encode them, so the vectors are those of one process, provided that all use
the same number of threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from diptych import plugins
from diptych.errors import DiptychError, one_line
from diptych.features.choices import Quality
from diptych.machine import available_cores
from diptych.model import Model
from diptych.models.engines.engine import Encodings

Batch: TypeAlias = Sequence[NDArray[Any]]
Options: TypeAlias = tuple[str, str, str, Quality]  # the address, device, snapshot and quality of a model

_BATCHES_AHEAD = 2  # per process, so that it need not wait for the next one


class ImageEncoder(Protocol):
    """Encodes batches; up to `ahead` of them may be begun before the first result is taken."""

    ahead: int

    def begin(self, batch: Batch) -> Callable[[], Encodings]:
        """Begin to encode a batch of preprocessed images; what is returned waits for the result."""
        ...


class OwnEncoder:
    """Encodes in this process, at once; the model is opened for the first batch."""

    ahead = 0

    def __init__(self, model: Model) -> None:
        self._model = model

    def begin(self, batch: Batch) -> Callable[[], Encodings]:
        """Encode a batch."""
        encodings = self._model.engine.encode_preprocessed(batch)
        return lambda: encodings


class EncodingPool:
    """Encodes in several processes; one thread for each hands it batches, and waits for what it returns."""

    def __init__(self, connections: Sequence[Connection], threads: ThreadPoolExecutor) -> None:
        self.ahead, self._threads = _BATCHES_AHEAD * len(connections), threads
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for connection in connections:
            self._free.put(connection)

    def begin(self, batch: Batch) -> Callable[[], Encodings]:
        """Hand a batch to the next process that is free."""
        return self._threads.submit(self._encode, list(batch)).result

    def _encode(self, batch: Batch) -> Encodings:
        connection = self._free.get()
        try:
            connection.send(batch)
            answer = connection.recv()
        except (EOFError, OSError):
            raise DiptychError(
                "a process that encodes has ended; what was written is complete: run the same command again"
            ) from None
        finally:
            self._free.put(connection)
        if isinstance(answer, str):
            raise DiptychError(answer)
        encodings: Encodings = answer
        return encodings


@contextmanager
def image_encoder(model: Model, processes: int = 1) -> Iterator[ImageEncoder]:
    """What encodes images for this model, until the block ends."""
    if processes == 1:
        yield OwnEncoder(model)
        return
    source = model.loaded("address")
    options = source.files.address, source.device, source.snapshot, source.quality
    context = multiprocessing.get_context("spawn")
    connections, started = [], []
    for number in range(processes):
        ours, theirs = context.Pipe()
        arguments = theirs, number, processes, options, plugins.allowed_code()
        started.append(context.Process(target=_encode_for_another, args=arguments, daemon=True))
        started[-1].start()
        theirs.close()  # or the end of the process would not be noticed
        connections.append(ours)
    threads = ThreadPoolExecutor(processes)
    try:
        yield EncodingPool(connections, threads)
    finally:
        for process in started:
            process.terminate()
        threads.shutdown(cancel_futures=True)
        for process in started:
            process.join()


def _encode_for_another(
    connection: Connection, number: int, processes: int, options: Options, allowed: Sequence[str]
) -> None:
    """Encode what comes through a connection, with a share of the cores, or on a GPU of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the first process, which ends this one
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // processes)))
    os.environ |= {"WORLD_SIZE": str(processes), "LOCAL_RANK": str(number)}  # see `machine.choose_device`
    plugins.allow_code(*allowed)
    address, device, snapshot, quality = options
    model: Model | None = None
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return
        try:
            model = model or Model.load(address, device, snapshot=snapshot, quality=quality)
            answer: Encodings | str = model.engine.encode_preprocessed(batch)
        except Exception as reason:  # which the first process raises
            answer = str(reason) if isinstance(reason, DiptychError) else one_line(reason)
        connection.send(answer)
