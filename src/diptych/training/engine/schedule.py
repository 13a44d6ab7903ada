"""Schedules: the learning rate of each step, as a share of the optimiser's rate."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from diptych.settings import Count, Number, Settings


class StepSchedule(Settings):
    """The rate is multiplied by `factor` after every `every` epochs."""

    name: Literal["step"] = "step"
    every: Count = 15
    factor: Annotated[Number, Field(gt=0)] = 0.1

    def share(self, progress: float, epochs: int) -> float:
        """The share at a place counted in epochs from 0."""
        return float(self.factor ** (int(progress) // self.every))


class ConstantSchedule(Settings):
    """The rate stays as it is."""

    name: Literal["constant"]

    def share(self, progress: float, epochs: int) -> float:
        """All of it, at any place."""
        return 1.0


class CosineSchedule(Settings):
    """The rate rises in a line over the first `warm_up` epochs and then falls to nothing along half a cosine."""

    name: Literal["cosine"]
    warm_up: Annotated[Number, Field(ge=0)] = 1.0

    def share(self, progress: float, epochs: int) -> float:
        """The share at a place counted in epochs from 0."""
        if progress < self.warm_up:
            return max(progress / self.warm_up, 0.01)  # the first step is a step, too
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warm_up) / max(epochs - self.warm_up, 1e-9)))


def _named(value: Any) -> Any:
    return {"name": "step", **value} if isinstance(value, dict) else value


Schedule = Annotated[
    StepSchedule | ConstantSchedule | CosineSchedule, Field(discriminator="name"), BeforeValidator(_named)
]
