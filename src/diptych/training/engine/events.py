"""What a training tells its callbacks: one small, read-only event per hook."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from diptych.objectives.objective import Objective
    from diptych.training.engine.choice import Choice
    from diptych.training.engine.precision import Precision
    from diptych.training.recipe import Recipe

Reason = Literal["finished", "stopped", "interrupted", "failed"]


@dataclass(frozen=True)
class Message:
    """Something that the user should read; `style` is a rich style, such as "bold red".

    If it has a `record`, the journal writes that to metrics.jsonl.
    """

    text: str
    style: str = ""
    record: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TrainingStart:
    """A training begins, or continues after `training_step` steps.

    `send` shows a message to the user and to all callbacks.
    """

    run: Path
    recipe: Recipe
    is_resumed: bool
    training_step: int
    send: Callable[[Message], None]


@dataclass(frozen=True)
class Preparation:
    """Progress of something that a stage needs first, such as features or mined lists."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class StageStart:
    """A stage begins (from 1), with `steps_done` of its `steps` already trained.

    `select` is the metric on val that chooses the best snapshot, and `chance` its value for a random order, if known.
    """

    stage: int
    stages: int
    steps: int
    steps_per_epoch: int
    steps_done: int
    objective: Objective
    select: str = "rsum"
    chance: float | None = None


@dataclass(frozen=True)
class Skipped:
    """A training image that could not be read."""

    image: str
    reason: str


@dataclass(frozen=True)
class StepEnd:
    """A step has finished. `step` counts within the epoch, `training_step` over all stages; both start at 1.

    `terms` are the batch's loss terms per pair; there are none if none of its images could be read. `mean_loss` is the
    epoch's loss per pair so far. `collapsed_steps` says how many steps in a row have looked collapsed to the objective.
    """

    stage: int
    epoch: int
    step: int
    training_step: int
    terms: Mapping[str, float]
    mean_loss: float
    rate: float
    pairs: int
    pairs_per_second: float
    skipped: tuple[Skipped, ...] = ()
    collapsed_steps: int = 0

    @property
    def loss(self) -> float:
        """The batch's loss per pair."""
        return sum(self.terms.values())


@dataclass(frozen=True)
class EpochEnd:
    """An epoch has finished and was validated; if `is_best`, its weights are those in best/ now.

    `metrics` were measured on val, and `summary` states the most important of them. `loss` and `terms` are means per
    pair; `learned` holds single numbers of the objective that change in training, such as a learned temperature, and
    `class_error` percentages.
    `precision` is that of the towers; in float16, `skipped_steps` had gradients that overflowed, and moved nothing.
    `collapsed_steps` says how many steps in a row have looked collapsed to the objective, and `score_range` is the
    difference of the highest and the lowest score of the last batch (NaN if none was trained since a resume).
    `choice` is what was chosen on val at the end of the epoch, such as the ridge of a solution in closed form.
    Epoch 0 is what a stage with `include_start` starts from: it has metrics, but no terms, and its loss is NaN.
    """

    stage: int
    epoch: int
    epochs: int
    step: int
    training_step: int
    metrics: Mapping[str, float]
    summary: str
    loss: float
    terms: Mapping[str, float]
    rate: float
    learned: Mapping[str, float]
    class_error: Mapping[str, float]
    is_best: bool
    seconds: float
    precision: Precision = "float32"
    skipped_steps: int = 0
    collapsed_steps: int = 0
    score_range: float = math.nan
    choice: Choice | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot was saved; training can resume from it."""

    path: Path
    stage: int
    epoch: int
    step: int
    training_step: int


@dataclass(frozen=True)
class TrainingEnd:
    """A training has ended: `error` is what interrupted it or made it fail.

    `best` holds the val metrics of the weights in best/; it is empty before the end of the first epoch.
    """

    run: Path
    reason: Reason
    error: BaseException | None
    best: Mapping[str, float]
