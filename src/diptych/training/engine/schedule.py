"""Learning rate schedules: the rate of each step, as a share of the optimiser's rate."""

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
        """The share after a number of epochs, which may be fractional."""
        return float(self.factor ** (int(progress) // self.every))


class ConstantSchedule(Settings):
    """The rate is constant."""

    name: Literal["constant"]

    def share(self, progress: float, epochs: int) -> float:
        """Always 1."""
        return 1.0


class CosineSchedule(Settings):
    """The rate rises linearly over the first `warm_up` epochs, then falls to 0 along half a cosine."""

    name: Literal["cosine"]
    warm_up: Annotated[Number, Field(ge=0)] = 1.0

    def share(self, progress: float, epochs: int) -> float:
        """The share after a number of epochs, which may be fractional."""
        if progress < self.warm_up:
            return max(progress / self.warm_up, 0.01)  # so that the first step is not lost
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warm_up) / max(epochs - self.warm_up, 1e-9)))


def _named(value: Any) -> Any:
    return {"name": "step", **value} if isinstance(value, dict) else value


Schedule = Annotated[
    StepSchedule | ConstantSchedule | CosineSchedule, Field(discriminator="name"), BeforeValidator(_named)
]
