"""The ranks of a test: processes, started as torchrun does on this machine, or threads of this process."""

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from diptych.errors import RankError
from diptych.ranks import Ranks

ROOT = Path(__file__).parents[2]
SECONDS = 300


def free_port():
    """A port of the loopback interface that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_ranks(count, arguments, **variables):
    """The processes `python ARGUMENTS`, one per rank; their output is captured."""
    port = free_port()
    common = {
        **os.environ,
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        **variables,
    }
    return [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def finish(processes, seconds=SECONDS):
    """The exit status and the two outputs of each process; those that take too long are killed."""
    try:
        with ThreadPoolExecutor(
            len(processes)
        ) as pool:  # one whose output nobody reads would wait, and the others for it
            outputs = list(pool.map(lambda process: process.communicate(timeout=seconds), processes))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def start(folder, *arguments):
    """The process `python ARGUMENTS` in a folder; its output is captured."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks_of(process):
    """The ids of the processes that a process has started, in that order."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def wait_for(condition, seconds=60):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """Ranks that are threads of one process, for tests of what they exchange."""

    exchange: Any = None  # common to all: a barrier, and the tensors that are exchanged

    def _device(self):
        return torch.device("cpu")

    def _gather_equal(self, tensor):
        barrier, tensors = self.exchange
        tensors[self.rank] = tensor.detach().clone()
        try:
            barrier.wait()
            parts = [part.clone() for part in tensors]
            barrier.wait()
        except threading.BrokenBarrierError:
            raise RankError("another rank has ended") from None
        assert len({part.shape for part in parts}) == 1, "the ranks exchange different things"
        return parts

    def sum_(self, tensor):
        return tensor.copy_(torch.stack(self._gather_equal(tensor)).sum(0))

    def broadcast_(self, tensor, rank=0):
        return tensor.copy_(self._gather_equal(tensor)[rank])


def on_threads(count, work):
    """What `work(ranks)` returns on each of several ranks that are threads; the first error of any is raised."""
    exchange = threading.Barrier(count, timeout=30), [None] * count

    def one(rank):
        try:
            return work(ThreadRanks(rank, count, exchange))
        except BaseException:
            exchange[0].abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(one, rank) for rank in range(count)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, RankError)):
            raise error
        return [future.result() for future in futures]
