"""Compare two ranks with one process, each with one thread on one core: a VSE++ step on the same batch, and mining.

The step is that of `training_step.py` on 256 pairs: one process encodes all of them, and each of two ranks 128. Mining
is that of `mining.py` on random embeddings, which both hold already. Works alternate in one job, in which the second
rank waits while the first one works alone. Times are those of the slower rank.

`limit` is the speed-up that the machine allows: two processes that train on half of the batch each, at the same time
and without exchanging anything, against one with the whole batch.

`gathering` is the share of the shared step in which a rank exchanges encodings, scores and their gradients, and
`gradients` that in which the gradients of the weights are summed; both include the time until the other rank is ready.
"""

from __future__ import annotations

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
from diptych.data.corpus import Features
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.pairs import Pairs
from diptych.evaluation.metrics.scores import embedding_score
from diptych.evaluation.metrics.tiles import BLOCK
from diptych.features.readers import FeatureReader
from diptych.machine import keep_freed_memory
from diptych.mining.exclusions import Exclusions
from diptych.mining.mine import merged
from diptych.mining.score_pass import ScorePass, Tiles
from diptych.ranks import Ranks, is_rank, join_ranks
from diptych.text.tokenisers.token_table import TokenTable
from diptych.training.distributed.agreement import Agreement
from diptych.training.distributed.reader import ShareReader
from harness import arguments, finish
from mining import TEXTS_EACH, TOP_IMAGES, TOP_TEXTS, embeddings
from plain import FEATURES, draw_texts
from training_step import OurStep

PAIRS, STEPS = 256, 4
STEP_TARGET, MINING_TARGET, GATHERING_TARGET = 1.6, 1.7, 0.15
LARGE = 1 << 18  # numbers: sums of more than that are those of gradients of weights


@dataclass(frozen=True)
class TimedRanks(Ranks):
    """Ranks that note how long they exchange what."""

    seconds: dict[str, float] = field(default_factory=lambda: {"gathering": 0.0, "gradients": 0.0})

    def _gather_equal(self, tensor: Tensor) -> list[Tensor]:
        parts: list[Tensor] = self._timed("gathering", super()._gather_equal, tensor)
        return parts

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks."""
        summed: Tensor = self._timed("gradients" if tensor.numel() > LARGE else "gathering", super().sum_, tensor)
        return summed

    def _timed(self, kind: str, work: Callable[[Tensor], Any], tensor: Tensor) -> Any:
        started = time.perf_counter()
        done = work(tensor)
        self.seconds[kind] += time.perf_counter() - started
        return done


class Steps:
    """The same few batches, as one process reads them and as this rank does."""

    def __init__(self, ranks: Ranks, size: int = PAIRS) -> None:
        random = np.random.default_rng(0)
        ids, lengths = draw_texts(random, size * STEPS)
        table = TokenTable.from_rows(row[:length] for row, length in zip(ids.tolist(), lengths, strict=True))
        features = Features([random.standard_normal((size * STEPS, FEATURES), dtype=np.float32)])
        reader = PairReader(np.arange(size * STEPS), FeatureReader(features), table)
        rows = np.arange(size * STEPS).reshape(STEPS, size)
        pairs = [Pairs(part, part, (0, 1, 1, number)) for number, part in enumerate(rows)]
        self.whole = [reader.read(part) for part in pairs]
        self._shares = ShareReader(reader, Agreement(ranks), together=False)
        self._read = [self._shares.read(part) for part in pairs]
        torch.manual_seed(0)
        self._step = OurStep()
        halves = [part[ranks.share(size)] for part in rows]
        own = [Pairs(part, part, (0, 1, 1, number)) for number, part in enumerate(halves)]
        self._own = [reader.read(part) for part in own]

    def alone(self) -> list[float]:
        """The losses of one process."""
        return [self._step(batch) for batch in self.whole]

    def apart(self) -> list[float]:
        """The losses of this rank's pairs by themselves."""
        return [self._step(batch) for batch in self._own]

    def together(self) -> list[float]:
        """The losses of all ranks."""
        return [self._step(self._shares.settle(read)) for read in self._read]


class Mining:
    """A pass over all scores, by one process or by all ranks."""

    def __init__(self, ranks: Ranks, images: int) -> None:
        torch.manual_seed(0)
        self._images, self._texts = embeddings(images, clustered=False)
        groups = np.random.default_rng(0).permutation(np.repeat(np.arange(images), TEXTS_EACH))
        self._exclusions = Exclusions(np.arange(images), groups, [str(text) for text in range(len(groups))])
        self._ranks, self._tiles = ranks, Tiles.of(images, len(groups), BLOCK)

    def alone(self) -> tuple[np.ndarray, np.ndarray]:
        """The lists of images and of texts."""
        return self._lists(self._tiles, Ranks())

    def together(self) -> tuple[np.ndarray, np.ndarray]:
        """The same lists."""
        return self._lists(self._tiles.share(self._ranks), self._ranks)

    def _lists(self, tiles: Tiles, ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
        score = embedding_score(lambda rows, columns: rows @ columns.T, self._images, self._texts[tiles.own_texts])
        done = ScorePass(score, self._exclusions, TOP_TEXTS, TOP_IMAGES, tiles)
        for _ in done.remaining():
            pass
        of_texts = ranks.all_rows(torch.from_numpy(done.images_of_texts.best()))
        return merged(done.texts_of_images.best(), ranks), of_texts.numpy()


def slower(ranks: Ranks, work: Callable[[], Any], *, alone: bool) -> float:
    """The wall time of some work, of the first rank alone or of the slower one."""
    ranks.wait()
    started = time.perf_counter()
    if ranks.is_first or not alone:
        work()
    taken = time.perf_counter() - started
    return float(max(ranks.gather_values(taken if ranks.is_first or not alone else 0.0)))


def times_of(ranks: Ranks, works: Any, rounds: int, *names: str) -> dict[str, list[float]]:
    """The wall times of some works, in turn; `alone` is that of one process, the others are those of all ranks."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            taken[name].append(slower(ranks, getattr(works, name), alone=name == "alone"))
        if ranks.is_first:
            now = ", ".join(f"{name} {times[-1]:.3f} s" for name, times in taken.items())
            print(f"round {number + 1} of {rounds}: {now}", file=sys.stderr)
    return taken


def main() -> None:
    """Start the ranks; each compares, and the first one reports."""
    options = arguments(__doc__)
    if not is_rank():
        os.environ["OMP_NUM_THREADS"] = "1"
        sys.exit(run_ranks(2, [sys.executable, *sys.argv]))
    keep_freed_memory()
    torch.set_num_threads(1)
    with join_ranks("cpu") as joined:
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[joined.rank % len(cores)]})
        ranks = TimedRanks(joined.rank, joined.count)
        steps = Steps(ranks)
        agree = bool(np.allclose(Steps(ranks).alone(), steps.together(), rtol=1e-3))
        ranks.seconds.update(gathering=0.0, gradients=0.0)
        rounds = 4 if options.quick else 10
        steps_taken = times_of(joined, steps, rounds, "alone", "together", "apart")
        exchanged = {kind: seconds / sum(steps_taken["together"]) for kind, seconds in ranks.seconds.items()}
        del steps
        mining = Mining(joined, 3000 if options.quick else 9170)
        ours, theirs = mining.together(), mining.alone()
        agree &= all(bool((a == b).all()) for a, b in zip(ours, theirs, strict=True))
        mining_taken = times_of(joined, mining, 2, "alone", "together")
        everywhere = ranks.gather_values([agree, exchanged])
    if not ranks.is_first:
        return
    agree = all(each for each, _ in everywhere)
    shares = {kind: round(max(each[kind] for _, each in everywhere), 3) for kind in exchanged}
    step, mined = ({name: min(times) for name, times in taken.items()} for taken in (steps_taken, mining_taken))
    speed, mining_speed = step["alone"] / step["together"], mined["alone"] / mined["together"]
    fast = speed >= STEP_TARGET and mining_speed >= MINING_TARGET and shares["gathering"] <= GATHERING_TARGET
    finish(
        "ranks",
        ratio=speed,
        target=STEP_TARGET,
        ok=fast and agree,
        limit=round(step["alone"] / step["apart"], 3),
        mining_ratio=round(mining_speed, 3),
        mining_target=MINING_TARGET,
        same_results=agree,
        share_of_step=shares,
        gathering_target=GATHERING_TARGET,
        step_seconds={name: round(each / STEPS, 4) for name, each in step.items()},
        mining_seconds={name: round(each, 3) for name, each in mined.items()},
    )


if __name__ == "__main__":
    main()
