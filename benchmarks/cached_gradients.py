"""Compare a batch of 4,096 pairs in chunks of 256 with plain steps of 256: time per example, and peak memory.

VSE++ on 2048-d stored features, word embedding 300, GRU 1024, vocabulary 10k, as in `training_step`, with max of
hinges, the contrastive sum, and MVN, which also scores within each modality. A large batch has more to compare, each
text with 4,096 images instead of 256; that is part of the measured time. Memory is the peak of a whole process, each
case in a process of its own. Time and memory of the plain step on all 4,096 pairs at once are reported as well. With
`--quick`, the batch has 512 pairs, and memory is measured for MVN only. Requires Linux, to read memory usage.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import numpy as np
import torch

from diptych.data.sampling.batch import PairBatch
from diptych.machine import keep_freed_memory
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.hinge import Hinge
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import Objective
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.step import Step
from diptych.training.needs.need import find_need
from diptych.training.recipe import Optimiser
from harness import arguments, finish, interleaved
from plain import FEATURES, VOCABULARY, draw_texts

CHUNK = 256
TIME_TARGET, MEMORY_TARGET = 1.5, 1.3
OBJECTIVES: dict[str, Objective] = {"max_of_hinges": Hinge(), "contrastive": Contrastive(), "mvn": MVN()}


def draw(pairs: int) -> PairBatch:
    """Pairs of distinct images with texts of Zipf-distributed words."""
    random = np.random.default_rng(0)
    ids, lengths = draw_texts(random, pairs)
    images = random.standard_normal((pairs, FEATURES), dtype=np.float32)
    rows = np.arange(pairs)
    return PairBatch(images, rows, ids, lengths, rows, groups=rows)


def parts(batch: PairBatch) -> list[PairBatch]:
    """The same pairs in batches of the chunk's size."""
    slices = [slice(start, start + CHUNK) for start in range(0, len(batch.ids), CHUNK)]
    rows = np.arange(CHUNK)
    return [PairBatch(batch.images[part], rows, batch.ids[part], batch.lengths[part], rows, rows) for part in slices]


def make_step(objective: Objective, chunk: int | None) -> Step:
    """A fresh model and its step."""
    torch.manual_seed(0)
    matcher = VSESettings(image=FeatureSettings(shape=(FEATURES,)), words=VOCABULARY).build().train()
    optimiser, needs = make_optimiser(matcher, Optimiser()), tuple(find_need(name)() for name in objective.needs)
    return Step(matcher, objective, optimiser, torch.device("cpu"), clip=2.0, chunk=chunk, needs=needs)


def _report_peak(result: SimpleQueue[int], objective: Objective, pairs: int, chunk: int | None, threads: int) -> None:
    """Report the peak memory of this process, in kB, after two steps; with 0 pairs, before any step."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    step = make_step(objective, chunk)
    if pairs:
        batch = draw(pairs)
        step(batch)
        step(batch)
    # Not getrusage: a child's peak there starts from its parent's.
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    result.put(int(line.split()[1]))


def peak(objective: Objective, pairs: int, chunk: int | None = None) -> float:
    """The peak memory of training in a process of its own, in megabytes."""
    context = multiprocessing.get_context("spawn")
    result: SimpleQueue[int] = context.SimpleQueue()
    process = context.Process(target=_report_peak, args=(result, objective, pairs, chunk, torch.get_num_threads()))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"the process that measures memory failed with exit code {process.exitcode}")
    return result.get() / 1000


def memory_of(objective: Objective, pairs: int) -> dict[str, float]:
    """Peaks in megabytes, and their ratio."""
    chunk, cached = peak(objective, CHUNK), peak(objective, pairs, CHUNK)
    return {"chunk": round(chunk), "cached": round(cached), "ratio": round(cached / chunk, 3)}


def main() -> None:
    """Compare time and memory for each objective; the largest ratio counts."""
    options = arguments(__doc__)
    keep_freed_memory()
    pairs = 512 if options.quick else 4096
    measured = ["mvn"] if options.quick else list(OBJECTIVES)
    memory = {name: memory_of(OBJECTIVES[name], pairs) for name in measured}
    whole, at_rest = peak(Hinge(), pairs), peak(Hinge(), 0)
    batch = draw(pairs)
    small_batches = parts(batch)
    works: dict[str, Callable[[], object]] = {"plain whole max_of_hinges": partial(make_step(Hinge(), None), batch)}
    for name, objective in OBJECTIVES.items():
        works[f"plain {name}"] = partial(train_on_each, make_step(objective, None), small_batches)
        works[f"cached {name}"] = partial(make_step(objective, CHUNK), batch)
    times = interleaved(works, 2 if options.quick else 3)
    ratios = {name: times[f"cached {name}"].wall / times[f"plain {name}"].wall for name in OBJECTIVES}
    cpu_ratios = {name: times[f"cached {name}"].cpu / times[f"plain {name}"].cpu for name in OBJECTIVES}
    most = max(figures["ratio"] for figures in memory.values())
    finish(
        "cached_gradients",
        ratio=max(ratios.values()),
        target=TIME_TARGET,
        ok=max(ratios.values()) <= TIME_TARGET and most <= MEMORY_TARGET,
        memory_ratio=most,
        memory_target=MEMORY_TARGET,
        time_ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        cpu_time_ratios={name: round(ratio, 3) for name, ratio in cpu_ratios.items()},
        megabytes=memory,
        megabytes_of_the_plain_step_on_all=round(whole),
        megabytes_before_training=round(at_rest),
        milliseconds_an_example={name: round(1000 * timing.wall / pairs, 3) for name, timing in times.items()},
        pairs=pairs,
        chunk=CHUNK,
    )


def train_on_each(step: Step, batches: list[PairBatch]) -> None:
    """Train on the batches, one after the other."""
    for batch in batches:
        step(batch)


if __name__ == "__main__":
    main()
