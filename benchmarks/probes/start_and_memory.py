"""Compare start-up time and memory of a run on torch and of its ONNX export.

    diptych export RUN --onnx --into EXPORT
    python benchmarks/probes/start_and_memory.py RUN EXPORT [--runs 5]

Each measurement is a fresh process, alternating between torch and onnxruntime: it loads the model and encodes one text
and one photo, on one core and on all. Start is the wall time from before the process begins until both are encoded;
memory is its peak; photo and text are the median times of further ones, one at a time, the photo including its crops.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

TEXT = "two dogs run along the beach"
TIMES = 15
ENGINES = ("torch", "onnx")


def encode_once(address: str) -> None:
    """Encode a text and a photo, print the peak memory at once, then the times of further ones."""
    import resource

    import numpy as np
    from PIL import Image

    from diptych.machine import keep_freed_memory
    from diptych.model import Model

    keep_freed_memory()  # as every command does
    model = Model.load(address, "cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    photo = Image.fromarray(pixels)
    model.encode_texts([TEXT])
    model.encode_images([photo])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)
    works: dict[str, Callable[[], object]] = {
        "photo": lambda: model.encode_images([photo]),
        "text": lambda: model.encode_texts([TEXT]),
    }
    milliseconds = {}
    for name, work in works.items():
        seconds = []
        for _ in range(TIMES):
            begin = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begin)
        milliseconds[name] = 1000 * statistics.median(seconds)
    print(json.dumps({**milliseconds, "torch": "torch" in sys.modules}), flush=True)


def measure(address: str, cores: set[int]) -> dict[str, float]:
    """Run a fresh process on these cores: seconds to its first answer, MB, and milliseconds per photo and per text."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # inherited by the child
    begin = time.perf_counter()
    with subprocess.Popen([sys.executable, __file__, "--answer", address], stdout=subprocess.PIPE, text=True) as child:
        os.sched_setaffinity(0, before)
        assert child.stdout is not None
        megabytes = float(child.stdout.readline())
        start = time.perf_counter() - begin
        return {"start": start, "memory": megabytes, **json.loads(child.stdout.readline())}


def main() -> None:
    """Measure and print a table."""
    if sys.argv[1:2] == ["--answer"]:
        encode_once(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("export")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    every = os.sched_getaffinity(0)
    table = Table("cores", "engine", "start, s", "best", "memory, MB", "ms per photo", "ms per text")
    for cores in [{min(every)}, every] if len(every) > 1 else [every]:
        found: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
        for number in range(arguments.runs + 1):
            for engine, address in zip(ENGINES, (arguments.run, arguments.export), strict=True):
                one = measure(address, cores)
                assert one["torch"] == (engine == "torch"), "the export must not load torch"
                if number:  # the first one fills the file cache
                    found[engine].append(one)
        for engine, runs in found.items():
            median = {name: statistics.median(one[name] for one in runs) for name in runs[0]}
            table.add_row(
                str(len(cores)),
                engine,
                f"{median['start']:.2f}",
                f"{min(one['start'] for one in runs):.2f}",
                f"{median['memory']:.0f}",
                f"{median['photo']:.1f}",
                f"{median['text']:.2f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
