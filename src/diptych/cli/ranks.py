"""Commands that several processes run together: started by torchrun, or by the command itself (`--devices`)."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer

from diptych.cli.console import print_error, silence
from diptych.errors import DiptychError
from diptych.machine import available_cores
from diptych.ranks import Ranks, is_rank, join_ranks

GRACE = 30.0  # seconds that ranks have to end by themselves once one of them has failed

_PR_SET_PDEATHSIG = 1  # prctl(2)


@contextmanager
def job(device: str, devices: int | None = None) -> Iterator[Ranks]:
    """Join the other ranks of this job; with `devices`, first start that many and exit with their status.

    The first rank reports for all, so the others are silent.
    """
    if devices is not None and devices > 1 and not is_rank():
        raise typer.Exit(run_ranks(devices, [sys.executable, "-m", "diptych", *sys.argv[1:]]))
    with join_ranks(device) as ranks:
        if ranks.is_first:
            yield ranks
            return
        silence()
        try:
            yield ranks
        except (DiptychError, KeyboardInterrupt):
            raise typer.Exit(1) from None


def run_ranks(count: int, command: Sequence[str]) -> int:
    """Run a command as several ranks on this machine until all have ended; returns the worst exit status.

    Ctrl-C and SIGTERM are passed on. When a rank fails, the others are ended.
    """
    common = {
        **os.environ,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    common.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // count)))
    ranks = [
        subprocess.Popen(
            command,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            start_new_session=True,  # Ctrl-C reaches them through this process alone, and so once
            preexec_fn=_end_with_parent,  # noqa: PLW1509 (before any thread is started)
        )
        for rank in range(count)
    ]
    with _passed_on(ranks):
        return _wait(ranks)


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    failed, failed_at = None, 0.0  # the first rank that has failed, and when
    while None in (statuses := [rank.poll() for rank in ranks]):
        if failed is None and any(statuses):
            failed, failed_at = next(number for number, status in enumerate(statuses) if status), time.monotonic()
        if failed is not None and time.monotonic() - failed_at > GRACE:
            for rank in ranks:
                rank.kill()
        time.sleep(0.05)
    if ranks[0].returncode < 0:  # otherwise it has said itself what happened
        failed = failed or 0
        status = ranks[failed].returncode
        what = f"was ended by {signal.Signals(-status).name}" if status < 0 else "has failed"
        print_error(
            f"rank {failed} {what}; what was saved is complete: run the same command again (to train: with --resume)"
        )
    return int(max(abs(rank.returncode) for rank in ranks))


@contextmanager
def _passed_on(ranks: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Pass signals on to all ranks while the block runs."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {
        number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with_parent() -> None:
    """On Linux, end a rank when the process that has started it is killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
