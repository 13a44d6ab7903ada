"""What objectives with a temperature share: its bounds, and learning it.

Scores are divided by the temperature: the lower it is, the more the hardest negatives count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from diptych.models.layers.precision import at_least_float32
from diptych.objectives.objective import ObjectiveContext, ScoreSummary
from diptych.objectives.ranking import Queries, Ranking
from diptych.settings import Flag, Number

# Below this, gradients of a small batch overflow in half precision: they are 1 / (pairs x temperature).
MIN_TEMPERATURE = 1e-4

# A learned temperature stays above this value, as CLIP's does, unless it starts below.
MIN_LEARNED_TEMPERATURE = 0.01

LOG_TEMPERATURE = "log_temperature"  # the name of the parameter


def initial_log_temperature(temperature: float) -> dict[str, Tensor]:
    """The parameter of a learned temperature: its logarithm."""
    return {LOG_TEMPERATURE: torch.tensor(math.log(temperature))}


def learned_temperature(parameters: Mapping[str, Tensor], start: float) -> Tensor:
    """The learned temperature, within its bound."""
    learned, lowest = parameters[LOG_TEMPERATURE], math.log(min(MIN_LEARNED_TEMPERATURE, start))
    bounded = learned + (learned.clamp(min=lowest) - learned).detach()  # keeps its gradient at the bound
    return bounded.exp()


class Tempered(Ranking):
    """An objective whose scores are divided by a temperature; `learn_temperature` makes it a parameter."""

    is_mean: ClassVar[bool] = True
    temperature: Annotated[Number, Field(ge=MIN_TEMPERATURE)] = 0.1
    learn_temperature: Flag = False

    def initial_parameters(self, context: ObjectiveContext) -> dict[str, Tensor]:
        """The logarithm of the temperature, if it is learned."""
        return initial_log_temperature(self.temperature) if self.learn_temperature else {}

    def relative_logits(self, queries: Queries, scores: Tensor) -> Tensor:
        """(score - score of the positive) / temperature, in single precision.

        Half precision ends at 65,504. Subtracting before dividing keeps the differences exact at low temperatures.
        """
        above = at_least_float32(scores) - at_least_float32(queries.positive_scores)
        if not self.learn_temperature:
            return above.div_(self.temperature)
        return above / learned_temperature(queries.parameters, self.temperature)

    def candidate_logits(self, queries: Queries) -> Tensor:
        """The relative logits of each query's negatives, and of its positive, which is 0: (queries, pairs)."""
        siblings = queries.positives & ~queries.is_positive_column  # neither the positive of this query nor negatives
        return self.relative_logits(queries, queries.scores).masked_fill_(siblings, -torch.inf)

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Never: even if all scores are equal, the gradient tells pairs from negatives."""
        return False
