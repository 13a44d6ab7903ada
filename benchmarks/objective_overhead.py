"""Compare calling an objective with the function inside of it, and with pytorch-metric-learning's counterpart.

1,024 pairs, forward and backward. Inside: `objective.loss` on a batch that is ready. Outside: the objective called with
the same scores, mask and extras, which it checks. With groups instead of a mask, the baseline makes the mask from them
as the training engine does. Objectives that read scores get a matrix of 1,024 x 1,024, those that classify get
embeddings of size 1,024.

The counterparts start from embeddings, as ours do here, and compute the same loss, which is checked: `SupConLoss` for
the contrastive sum, and the hardest triplets of `BatchHardMiner` for max of hinges, in both directions. They are
skipped if pytorch-metric-learning (the extra `bench`) is not installed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from diptych.data.sampling.extras import Extras
from diptych.machine import keep_freed_memory
from diptych.objectives import (
    MVN,
    ClassifierInputs,
    Contrastive,
    Hinge,
    Instance,
    Logistic,
    Neighbourhood,
    Objective,
    OfflineScores,
    Quintuplet,
    ScoredPairs,
    WithinScores,
)
from harness import Timing, arguments, finish, timed

PAIRS, SIZE, TEXTS_PER_IMAGE = 1024, 1024, 5
TARGET, PEER_TARGET = 1.05, 1.0
TEMPERATURE, MARGIN = 0.1, 0.2
FEWEST = 3  # rounds

Work = Callable[[], object]


def backward(leaves: list[Tensor], loss: Callable[[], Tensor]) -> None:
    """Compute a loss and the gradients of its inputs."""
    for leaf in leaves:
        leaf.grad = None
    loss().backward()


class Batch:
    """The inputs of all objectives."""

    def __init__(self) -> None:
        self.groups = torch.arange(PAIRS) // TEXTS_PER_IMAGE
        self.positives = self.groups[:, None] == self.groups
        self.images, self.texts = (torch.randn(PAIRS, SIZE).requires_grad_() for _ in range(2))
        self.scores, *within = (torch.rand(PAIRS, PAIRS).mul(2).sub(1).requires_grad_() for _ in range(3))
        text, image, both, derived = offline = [torch.rand(PAIRS, requires_grad=True) for _ in range(4)]
        always = torch.ones(PAIRS, dtype=torch.bool)
        self.extras = [WithinScores(*within), OfflineScores(text, image, both, derived, always, always)]
        self.leaves = [self.images, self.texts, self.scores, *within, *offline]

    def mask_works(self, objective: Objective) -> tuple[Work, Work]:
        """The function inside of an objective that reads scores, and the call to it."""
        ready = ScoredPairs(self.scores, self.positives, Extras(*self.extras))
        inside = partial(backward, self.leaves, lambda: objective.loss(ready).total)
        call = partial(objective, self.scores, positives=self.positives, extras=self.extras)
        return inside, partial(backward, self.leaves, call)

    def group_works(self, objective: Objective) -> tuple[Work, Work]:
        """The same, from groups."""

        def inside() -> Tensor:
            positives = self.groups[:, None] == self.groups
            return objective.loss(ScoredPairs(self.scores, positives, Extras(*self.extras))).total

        call = partial(objective, self.scores, groups=self.groups, extras=self.extras)
        return partial(backward, self.leaves, inside), partial(backward, self.leaves, call)

    def classifier_works(self, objective: Instance) -> tuple[Work, Work]:
        """The same for an objective that classifies embeddings."""
        classes = int(self.groups.max()) + 1
        module, rows = objective.as_module(classes=classes, embedding_dim=SIZE), torch.arange(PAIRS)
        inputs = ClassifierInputs(self.images, self.texts, rows, rows, self.groups)
        ready = ScoredPairs(self.scores, self.positives, Extras(inputs), dict(module.named_parameters()))
        leaves = [*self.leaves, *module.parameters()]
        inside = partial(backward, leaves, lambda: objective.loss(ready).total)
        call = partial(module, images=self.images, texts=self.texts, classes=self.groups)
        return inside, partial(backward, leaves, call)


def overhead_works(batch: Batch) -> dict[str, tuple[Work, Work]]:
    """Each objective: the function inside, and the call."""
    objectives: dict[str, Objective] = {
        "hinge_max": Hinge(margin=MARGIN),
        "hinge_sum": Hinge(margin=MARGIN, negatives="sum"),
        "contrastive": Contrastive(temperature=TEMPERATURE),
        "mvn": MVN(temperature=TEMPERATURE),
        "quintuplet": Quintuplet(),
        "neighbourhood": Neighbourhood(image_to_image=0.1, text_to_text=0.1),
        "logistic": Logistic(),
    }
    works = {name: batch.mask_works(objective) for name, objective in objectives.items()}
    works |= {f"{name}_groups": batch.group_works(objectives[name]) for name in ("hinge_max", "contrastive")}
    return works | {"instance": batch.classifier_works(Instance())}


def peer_works(batch: Batch) -> dict[str, tuple[Work, Work]]:
    """Each counterpart, and our call; empty if pytorch-metric-learning is not installed."""
    try:
        from pytorch_metric_learning import distances, losses, miners, reducers
    except ImportError:
        return {}
    cosine, labels = distances.CosineSimilarity(), torch.arange(PAIRS)
    others_labels = labels.clone()  # if it were the same tensor, the pairs themselves would not count as positives
    contrast = losses.SupConLoss(temperature=TEMPERATURE, reducer=reducers.MeanReducer())
    miner = miners.BatchHardMiner(distance=cosine)
    triplets = losses.TripletMarginLoss(margin=MARGIN, distance=cosine, reducer=reducers.SumReducer())
    sides = (batch.images, batch.texts), (batch.texts, batch.images)

    def their_contrastive() -> Any:
        return sum(contrast(ours, labels, ref_emb=others, ref_labels=others_labels) for ours, others in sides)

    def their_hinges() -> Any:
        hardest = (miner(ours, labels, others, others_labels) for ours, others in sides)
        return sum(
            triplets(ours, labels, found, ref_emb=others, ref_labels=others_labels)
            for (ours, others), found in zip(sides, hardest, strict=True)
        )

    compared = {
        "contrastive": (their_contrastive, Contrastive(temperature=TEMPERATURE)),
        "hinge_max": (their_hinges, Hinge(margin=MARGIN)),
    }
    works: dict[str, tuple[Work, Work]] = {}
    for name, (theirs, objective) in compared.items():
        ours = partial(objective, images=batch.images, texts=batch.texts, groups=labels)
        torch.testing.assert_close(ours().detach().as_subclass(Tensor), theirs().detach(), rtol=1e-4, atol=1e-4)
        works[name] = partial(backward, batch.leaves, theirs), partial(backward, batch.leaves, ours)
    return works


def compare(works: Mapping[str, tuple[Work, Work]], rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """For each name, the median times of a baseline and of our call, and the median of their ratio within a round.

    The two take turns in going first. On a busy machine there are fewer rounds, so that they end in time.
    """
    taken: dict[str, list[tuple[Timing, Timing]]] = {name: [] for name in works}
    started = time.perf_counter()
    for number in range(rounds + 1):
        for name, (baseline, ours) in works.items():
            if number % 2:
                second, first = timed(ours), timed(baseline)
            else:
                first, second = timed(baseline), timed(ours)
            if number:  # the first round warms up
                taken[name].append((first, second))
        print(f"round {number} of {rounds}", file=sys.stderr)
        if number >= FEWEST and time.perf_counter() - started > seconds:
            break
    return {name: _figures(times) for name, times in taken.items()}


def _figures(times: list[tuple[Timing, Timing]]) -> dict[str, float]:
    median = statistics.median
    return {
        "ratio": round(median(ours.wall / baseline.wall for baseline, ours in times), 3),
        "cpu_ratio": round(median(ours.cpu / baseline.cpu for baseline, ours in times), 3),
        "milliseconds": round(1000 * median(ours.wall for _, ours in times), 2),
        "baseline_milliseconds": round(1000 * median(baseline.wall for baseline, _ in times), 2),
    }


def main() -> None:
    """Time all, interleaved."""
    options = arguments(__doc__)
    keep_freed_memory()
    torch.manual_seed(0)
    batch = Batch()
    overhead = compare(overhead_works(batch), *((15, 20) if options.quick else (60, 120)))
    peers = compare(peer_works(batch), *((7, 8) if options.quick else (25, 60)))
    # Wall time counts what other processes do, and CPU time counts threads that wait: the lower of the two is ours.
    ratio = max(min(each["ratio"], each["cpu_ratio"]) for each in overhead.values())
    finish(
        "objective_overhead",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET and all(each["ratio"] <= PEER_TARGET for each in peers.values()),
        overhead=overhead,
        peers=peers or "skipped: pytorch-metric-learning is not installed",
    )


if __name__ == "__main__":
    main()
