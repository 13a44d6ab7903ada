"""How long runs take: from records of this machine, or else from the pace that a file of claims states.

    seconds = pace x machine x pairs / 1,000 x epochs

The pace is the CPU time of an epoch per 1,000 pairs. A record of the same recipe with another seed gives it exactly,
one of the same model and objective nearly. A stated pace was measured on another machine: `machine` is how much slower
this one is, by the records here of runs with a stated pace, or else by a short measurement of a GRU.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch

from diptych.machine import machine_name
from diptych.reproduction.planned_run import PlannedRun
from diptych.reproduction.records import RecordHeader
from diptych.reproduction.tasks import MineTask, Task, TogetherTask, TrainTask

Source = Literal["measured", "measured on a similar run", "stated", "unknown"]

REFERENCE_SECONDS = 0.11  # of `_calibrate` on the machine that stated paces were measured on
_SECONDS_PER_TEXT = 0.003  # of test, to measure a run: a guess that hardly matters


@dataclass(frozen=True)
class Estimate:
    """The CPU time of a task, and where it comes from; None if nothing is known."""

    seconds: float | None
    source: Source


@dataclass
class Speeds:
    """Estimates the time of tasks by the records of this machine."""

    headers: Sequence[RecordHeader]
    test_texts: int
    planned: Iterable[PlannedRun] = ()  # runs whose stated pace may be compared with their records
    machine: str = field(default_factory=machine_name)

    def __post_init__(self) -> None:
        self._paces: dict[str, list[float]] = {}
        for header in self._usable():
            pace = 1000 * header.seconds / (header.epochs * header.pairs)
            for shape in _shapes(header.recipe):
                self._paces.setdefault(shape, []).append(pace)
        stated = {run.key: run.pace for run in self.planned if run.pace}
        ratios = [
            1000 * header.seconds / (header.epochs * header.pairs) / stated[header.key]
            for header in self._usable()
            if header.key in stated
        ]
        self._slower = statistics.median(ratios) if ratios else None

    def _usable(self) -> Iterable[RecordHeader]:
        return (each for each in self.headers if each.machine == self.machine and each.epochs and each.pairs)

    @property
    def machine_factor(self) -> float:
        """How much slower this machine is than the one that paces were stated for."""
        return _calibrate() / REFERENCE_SECONDS if self._slower is None else self._slower

    @property
    def _measuring(self) -> float:
        return self.test_texts * _SECONDS_PER_TEXT * self.machine_factor

    def of(self, task: Task) -> Estimate:
        """The CPU time of a task, features not counted, which are computed once."""
        if isinstance(task, MineTask | TogetherTask):
            return Estimate(self._measuring, "stated")
        return self._training(task)

    def _training(self, task: TrainTask) -> Estimate:
        epochs = sum(stage.epochs for stage in task.run.recipe.stage) - task.shared_epochs
        same, similar = _shapes(task.run.recipe.to_dict())
        size = epochs * task.pairs / 1000
        if same in self._paces:
            return Estimate(statistics.fmean(self._paces[same]) * size + self._measuring, "measured")
        if similar in self._paces:
            seconds = statistics.fmean(self._paces[similar]) * size + self._measuring
            return Estimate(seconds, "measured on a similar run")
        if task.run.pace is None:
            return Estimate(None, "unknown")
        return Estimate(task.run.pace * self.machine_factor * size + self._measuring, "stated")


def _shapes(recipe: Mapping[str, Any]) -> tuple[str, str]:
    """Digests of the recipe without its seed, and of what its speed depends on most."""
    same = {key: value for key, value in recipe.items() if key not in ("seed", "title", "paper", "stage")}
    same["stage"] = [_without_runs(stage) for stage in recipe["stage"]]
    stages = [
        {"objective": stage["objective"].get("name"), "trainable": stage["trainable"], "batches": stage["batches"]}
        | {key: stage.get(key) is not None for key in ("crops", "head", "offline", "phrases")}
        for stage in recipe["stage"]
    ]
    similar = {"model": recipe.get("model"), "stage": stages}
    same_digest, similar_digest = (
        hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest() for each in (same, similar)
    )
    return same_digest, similar_digest


def _without_runs(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A stage without the names of other runs, which contain their seeds."""
    offline = stage.get("offline")
    without = {"start": str(stage["start"]).partition(":")[0]}
    return {**stage, **without, **({} if offline is None else {"offline": {**offline, "lists": ""}})}


@cache
def _calibrate() -> float:
    """The CPU time of a few training steps of a GRU, in seconds, which takes about a second."""
    torch.manual_seed(0)
    network, inputs = torch.nn.GRU(300, 512, batch_first=True), torch.randn(128, 12, 300)
    seconds = []
    for _ in range(10):
        start = time.process_time()
        network(inputs)[0].sum().backward()
        seconds.append(time.process_time() - start)
    return min(seconds)
