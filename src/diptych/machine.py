"""The machine: which device to use, how many threads, an allocator that keeps what it has, and a Ctrl-C that waits."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from diptych.errors import DiptychError

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(name: str = "auto") -> torch.device:
    """The named device, or the best one that is here."""
    import torch  # here alone: who serves from an export never loads it

    kind = name.split(":")[0]
    if kind not in DEVICES:
        raise DiptychError(f"device {name!r}: not one of {', '.join(DEVICES)}")
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        return torch.device(next(kind for kind, is_here in here.items() if is_here))
    if not here[kind]:
        raise DiptychError(f"device {name!r} is not available here; use --device cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise DiptychError(f"device {name!r}: not a device; write cuda:0 for the first one") from None


def available_cores() -> int:
    """The cores this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep large blocks instead of giving them back to the kernel; says whether it did.

    Activations of a training step are freed and allocated again every step: with the default thresholds each of them is
    a fresh mapping whose pages fault one by one.
    """
    if not sys.platform.startswith("linux"):
        return False
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # mallopt(3)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = {mmap_max: 0, trim_threshold: 2**31 - 1, top_pad: 256 * 2**20}
    accepted = [mallopt(ctypes.c_int(option), ctypes.c_int(value)) == 1 for option, value in settings.items()]
    return all(accepted)


@contextmanager
def interrupt_event() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into an event that is looked at when it suits; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def remember(_number: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
