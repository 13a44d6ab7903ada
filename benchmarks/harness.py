"""Shared by all benchmarks: the `--quick` option, interleaved timing, and the JSON line at the end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from diptych.machine import available_cores


@dataclass(frozen=True)
class Timing:
    """The best of several rounds in seconds: wall time, and CPU time of all threads."""

    wall: float
    cpu: float


def arguments(description: str | None, **own: str) -> argparse.Namespace:
    """Parse `--quick` and a benchmark's `own` options, each with its help, and let torch use all cores.

    The process restarts itself with OpenMP threads that spin only briefly: on a busy machine, spinning threads would
    measure the scheduler.
    """
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ["GOMP_SPINCOUNT"] = "10000"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less work, in under 50 seconds")
    for name, text in own.items():
        parser.add_argument(f"--{name}", metavar="PATH", help=text)
    torch.set_num_threads(available_cores())
    return parser.parse_args()


def timed(work: Callable[[], object]) -> Timing:
    """Time one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Time several functions in turn, so that a busy machine slows down all of them, and keep the best of each."""
    taken: dict[str, list[Timing]] = {name: [] for name in works}
    for round_number in range(rounds):
        for name, work in works.items():
            taken[name].append(timed(work))
        now = ", ".join(f"{name} {times[-1].wall:.3f} s" for name, times in taken.items())
        print(f"round {round_number + 1} of {rounds}: {now}", file=sys.stderr)
    return {
        name: Timing(min(each.wall for each in times), min(each.cpu for each in times)) for name, times in taken.items()
    }


def finish(name: str, *, ratio: float, target: float, ok: bool, **figures: Any) -> NoReturn:
    """Print the result as the last line, and exit with 0 if the target is met, with 1 otherwise."""
    print(json.dumps({"name": name, "ratio": round(ratio, 3), "target": target, "ok": bool(ok), **figures}), flush=True)
    sys.exit(not ok)
