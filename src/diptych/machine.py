"""The machine: its name, which device to use, how many cores, memory kept for reuse, and a Ctrl-C that can wait."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from diptych.errors import DiptychError
from diptych.ranks import local_device

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda", "mps")


def device_kind(name: str) -> str:
    """The kind of the named device, such as `cuda` for `cuda:1`; an unknown one is an error."""
    kind = name.split(":", maxsplit=1)[0]
    if kind not in DEVICES:
        raise DiptychError(f"device {name!r}: not one of {', '.join(DEVICES)}")
    return kind


def choose_device(name: str = "auto") -> torch.device:
    """The named device; `auto` is the fastest one available."""
    import torch  # not at the top: serving an exported model must not load it

    name = local_device(name)
    kind = device_kind(name)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        return torch.device(next(kind for kind, is_available in available.items() if is_available))
    if not available[kind]:
        raise DiptychError(f"device {name!r} is not available; use the device 'cpu'")
    try:
        return torch.device(name)
    except RuntimeError:
        raise DiptychError(f"device {name!r}: not a device; write cuda:0 for the first one") from None


def available_cores() -> int:
    """The number of cores this process may use; in a container it can be less than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_name() -> str:
    """The processor and the number of cores, which measured times belong to; not the name of the host."""
    cpu = platform.processor() or platform.machine()
    with suppress(OSError):  # only on Linux
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return f"{cpu}, {available_cores()} cores"


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed memory instead of returning it to the kernel; returns whether it could.

    Every training step frees and allocates its activations: with the default thresholds each of them is a fresh mapping
    whose pages fault one by one.
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
    """Yield an event that Ctrl-C or SIGTERM sets, to be checked when it suits; a second signal interrupts at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def set_event(_number: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    handlers = {number: signal.signal(number, set_event) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
