"""What a training step, its exchanges and mining cost on this machine, and what that predicts for more pairs and ranks.

Two ranks of one thread each; the second one waits while the first one measures alone:

- a VSE++ step of `training_step.py` with 64 to 512 pairs takes `fixed + pairs * each` seconds;
- a rank receives so many bytes per step, counted, beside the formulas below; sums of gradients have a measured speed;
- max of hinges takes so many seconds per score, forward and backward: every rank computes it from all scores;
- mining takes `constant * images ** exponent` seconds, fitted to three numbers of images with five texts each.

The predictions are arithmetic from these figures; `--gigabytes-per-second` is the speed of the network between ranks.
Run it as `PYTHONPATH=benchmarks python benchmarks/probes/planning.py`; it takes three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from diptych.cli.ranks import run_ranks
from diptych.machine import keep_freed_memory
from diptych.mining.mine import TOP_TEXTS
from diptych.objectives.hinge import Hinge
from diptych.ranks import Ranks, is_rank, join_ranks
from plain import JOINT
from ranks import STEPS, Mining, Steps

BATCHES, IMAGES, TEXTS_EACH, ROUNDS = (64, 128, 256, 512), (3_000, 9_000, 27_000), 5, 5
OBJECTIVE = 2048  # pairs of the scores that the objective is timed with
OWN_PAIRS, RANKS = 128, (1, 2, 8, 64, 512)  # for predictions: pairs per rank
CORPORA = {"COCO": (113_287, 566_435), "10 million": (10**7, 10**7), "1 billion": (10**9, 10**9)}  # images, texts
FLOAT, KEY = 4, 8  # bytes of a number, and of an entry of a list while mining


@dataclass(frozen=True)
class CountedRanks(Ranks):
    """Ranks that count what this rank receives: rows of others, and sums, which go round a ring twice."""

    received: dict[str, float] = field(default_factory=lambda: {"gathered": 0.0, "summed": 0.0})

    def _gather_equal(self, tensor: Tensor) -> list[Tensor]:
        self.received["gathered"] += tensor.numel() * tensor.element_size() * (self.count - 1)
        return super()._gather_equal(tensor)

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks."""
        self.received["summed"] += tensor.numel() * tensor.element_size() * 2 * (self.count - 1) / self.count
        return super().sum_(tensor)


def exchanged_bytes(pairs: int, ranks: int) -> float:
    """What a rank receives in a step of `pairs` pairs, apart from the gradients of weights.

    The encodings of both sides, the gradients of images, twice those of texts, which are summed, and all scores.
    """
    return FLOAT * (5 * pairs * JOINT + pairs * pairs) * (ranks - 1) / ranks


def best(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The shortest time of several, in seconds."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def alone() -> dict[str, Any]:
    """What one process of one thread takes."""
    steps = {size: best(Steps(Ranks(), size).alone) / STEPS for size in BATCHES}
    scores = torch.randn(OBJECTIVE, OBJECTIVE, requires_grad=True)
    objective = best(lambda: torch.autograd.grad(Hinge()(scores, groups=torch.arange(OBJECTIVE)), scores))
    each, fixed = np.polyfit(list(steps), list(steps.values()), 1)
    mining = {images: best(Mining(Ranks(), images).alone, 1 if images > 10_000 else 3) for images in IMAGES}
    exponent = np.polyfit(np.log(list(mining)), np.log(list(mining.values())), 1)[0]
    return {
        "step_seconds": steps,
        "step_fixed": float(fixed),
        "step_each": float(each),
        "objective_each": objective / OBJECTIVE**2,
        "mining_seconds": mining,
        "mining_exponent": float(exponent),
    }


def together(joined: Ranks) -> dict[str, Any]:
    """What two ranks exchange in a step, and how fast."""
    received: dict[int, Any] = {}
    for size in BATCHES:
        ranks = CountedRanks(joined.rank, joined.count)
        steps = Steps(ranks, size)
        ranks.received.update(gathered=0.0, summed=0.0)
        steps.together()
        received[size] = {kind: count / STEPS for kind, count in ranks.received.items()}
        received[size]["formula"] = exchanged_bytes(size, joined.count)
    weights = torch.zeros(8 << 20)

    def exchange() -> None:
        joined.wait()
        joined.sum_(weights)

    return {"received_bytes": received, "summed_gigabytes_per_second": weights.numel() * FLOAT / best(exchange) / 1e9}


def predictions(found: dict[str, Any], gigabytes_per_second: float) -> str:
    """Tables in Markdown: steps by ranks, and what the corpora need."""
    steps, rates = [], {}
    for ranks in RANKS:
        pairs = ranks * OWN_PAIRS
        own = found["step_fixed"] + OWN_PAIRS * found["step_each"]
        objective = pairs**2 * found["objective_each"]
        exchange = (exchanged_bytes(pairs, ranks) + gradient_bytes(found, ranks)) / gigabytes_per_second / 1e9
        rates[ranks] = pairs / (own + objective + exchange)
        times = (f"{1000 * seconds:,.0f} ms" for seconds in (own, objective, exchange))
        steps.append([ranks, f"{pairs:,}", *times, f"{rates[ranks]:,.0f}", in_bytes(FLOAT * pairs**2)])
    largest = max(found["mining_seconds"])
    score = found["mining_seconds"][largest] / (largest**2 * TEXTS_EACH)
    needs = [
        [f"an epoch, {ranks} ranks", *(in_time(images / rates[ranks]) for images, _ in CORPORA.values())]
        for ranks in RANKS[:-1]
    ]
    for ranks in (1, 64):
        mined = (in_time(score * images * texts / ranks) for images, texts in CORPORA.values())
        held = (in_bytes(bytes_while_mining(images, texts / ranks)) for images, texts in CORPORA.values())
        needs += [[f"mining, {ranks} ranks", *mined], [f"memory of each of {ranks} ranks while mining", *held]]
    of_steps = ["Ranks", "Pairs", "Own work", "Objective", "Exchange", "Pairs per second", "One array of scores"]
    return f"{table(of_steps, steps)}\n\n{table(['', *CORPORA], needs)}"


def gradient_bytes(found: dict[str, Any], ranks: int) -> float:
    """What a rank receives to sum the gradients of weights in a ring; two ranks receive as many bytes as they have."""
    of_two: float = max(each["summed"] for each in found["received_bytes"].values())
    return 2 * of_two * (ranks - 1) / ranks


def bytes_while_mining(images: float, own_texts: float) -> float:
    """The encodings of all images and of the rank's own texts, and the lists of all images."""
    return FLOAT * JOINT * (images + own_texts) + KEY * TOP_TEXTS * images


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def in_time(seconds: float) -> str:
    """A time in words."""
    units = (("years", 365 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60))
    return next((f"{seconds / size:,.0f} {unit}" for unit, size in units if seconds >= 2 * size), f"{seconds:.0f} s")


def in_bytes(count: float) -> str:
    """A number of bytes in words."""
    units = (("TB", 1e12), ("GB", 1e9))
    return next((f"{count / size:,.1f} {unit}" for unit, size in units if count >= size), f"{count / 1e6:,.1f} MB")


def main() -> None:
    """Start the ranks, measure, and print the figures and what they predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes-per-second", type=float, default=1.25, help="10 Gbit/s by default")
    options = parser.parse_args()
    if not is_rank():
        os.environ |= {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "10000"}
        sys.exit(run_ranks(2, [sys.executable, *sys.argv]))
    keep_freed_memory()
    torch.set_num_threads(1)
    with join_ranks("cpu") as joined:
        found = {"ranks": joined.count} | together(joined)
        if joined.is_first:
            found |= alone()
    if joined.is_first:
        print(json.dumps(found))
        print(predictions(found, options.gigabytes_per_second))


if __name__ == "__main__":
    main()
