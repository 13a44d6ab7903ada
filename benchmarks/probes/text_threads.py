"""Time the encoding of texts without torch, with the products on one thread and on as many as there are cores.

    python benchmarks/probes/text_threads.py [RUN]

The run must be an export, or have graphs beside its weights, as the starter has. Captions are encoded a thousand at a
time, in turn on one thread and on several; the best of three rounds counts.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from unittest.mock import patch

import diptych
from diptych.models.sentence import numpy_layers
from diptych.models.sentence.blas_threads import one_blas_thread

TEXTS = [f"a man in a red shirt rides a brown horse along the sandy beach at sunset {number}" for number in range(1000)]
ROUNDS = 3


def main() -> None:
    """Print the seconds and the CPU seconds of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="starter")
    model = diptych.load(parser.parse_args().run)
    model.encode_texts(TEXTS)
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for name, context in (("one thread", one_blas_thread), ("all threads", nullcontext)):
            with patch.object(numpy_layers, "one_blas_thread", context):
                wall, cpu = time.perf_counter(), time.process_time()
                model.encode_texts(TEXTS)
                taken = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = min(best.get(name, taken), taken)
    for name, (wall, cpu) in best.items():
        print(f"{name:12} {wall:.2f} s, {cpu:.2f} s of CPU")


if __name__ == "__main__":
    main()
