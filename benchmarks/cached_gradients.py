"""A batch of 4,096 pairs in chunks of 256 against plain steps of 256: the time an example, and the peak memory.

VSE++ on 2048-d stored features, word embedding 300, GRU 1024, vocabulary 10k, as in `training_step`, with max of
hinges, the contrastive sum, and MVN, which scores images and texts among themselves as well. A large batch also has
more to compare: a text with 4,096 images and not with 256, which is part of the time here. Memory is the peak of a
process that trains, each in a process of its own, since that is what has to fit. Told beside are time and memory of
the plain step on all 4,096 at once. The quick form has 512 pairs, and measures the memory of MVN alone. Needs Linux,
to read the memory.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import numpy as np
import torch
from diptych.training.engine.stage import make_optimiser

from diptych.data.sampling.pairs import PairBatch
from diptych.machine import keep_freed_memory
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.hinge import Hinge
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import Objective
from diptych.training.engine.step import Step
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
    return PairBatch(images, np.arange(pairs), ids, lengths, np.arange(pairs))


def parts(batch: PairBatch) -> list[PairBatch]:
    """The same pairs as batches of the chunk's size."""
    rows = [slice(start, start + CHUNK) for start in range(0, len(batch.ids), CHUNK)]
    own = np.arange(CHUNK)
    return [PairBatch(batch.images[row], own, batch.ids[row], batch.lengths[row], own) for row in rows]


def make_step(objective: Objective, chunk: int | None) -> Step:
    """A fresh model and its step."""
    torch.manual_seed(0)
    matcher = VSESettings(image=FeatureSettings(shape=(FEATURES,)), words=VOCABULARY).build().train()
    return Step(matcher, objective, make_optimiser(matcher, Optimiser()), torch.device("cpu"), clip=2.0, chunk=chunk)


def _peak(told: SimpleQueue[int], objective: Objective, pairs: int, chunk: int | None, threads: int) -> None:
    """Tell the most memory, in kB, that this process held after two steps on so many pairs, or on none."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    step = make_step(objective, chunk)
    if pairs:
        batch = draw(pairs)
        step(batch)
        step(batch)
    # Not getrusage: its peak begins with that of the process that started this one.
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    told.put(int(line.split()[1]))


def peak(objective: Objective, pairs: int, chunk: int | None = None) -> float:
    """The peak of a process of its own, in megabytes."""
    context = multiprocessing.get_context("spawn")
    told: SimpleQueue[int] = context.SimpleQueue()
    process = context.Process(target=_peak, args=(told, objective, pairs, chunk, torch.get_num_threads()))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"the process that measures memory ended with {process.exitcode}")
    return told.get() / 1000


def memory_of(objective: Objective, pairs: int) -> dict[str, float]:
    """Peaks in megabytes, and the ratio that counts."""
    chunk, cached = peak(objective, CHUNK), peak(objective, pairs, CHUNK)
    return {"chunk": round(chunk), "cached": round(cached), "ratio": round(cached / chunk, 3)}


def main() -> None:
    """Compare time and memory for each objective; the worst counts."""
    options = arguments(__doc__)
    keep_freed_memory()
    pairs = 512 if options.quick else 4096
    measured = ["mvn"] if options.quick else list(OBJECTIVES)
    memory = {name: memory_of(OBJECTIVES[name], pairs) for name in measured}
    whole, at_rest = peak(Hinge(), pairs), peak(Hinge(), 0)
    batch = draw(pairs)
    cut = parts(batch)
    works: dict[str, Callable[[], object]] = {"plain whole max_of_hinges": partial(make_step(Hinge(), None), batch)}
    for name, objective in OBJECTIVES.items():
        works[f"plain {name}"] = partial(each, make_step(objective, None), cut)
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


def each(step: Step, batches: list[PairBatch]) -> None:
    """Train on one batch after another."""
    for batch in batches:
        step(batch)


if __name__ == "__main__":
    main()
