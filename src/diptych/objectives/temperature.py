"""What the objectives with a temperature share: its bounds, and learning it.

Scores are divided by the temperature: the lower it is, the more the hardest negatives count.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from diptych.objectives.hinge import own_places, own_scores
from diptych.objectives.objective import ObjectiveContext, Queries, Ranking, Summary
from diptych.settings import Flag, Number

# Below this, gradients of a small batch in half precision overflow: they are 1 / (pairs x temperature).
COLDEST = 1e-4

# A learned temperature stays above this one, as CLIP's does, unless it starts below.
COLDEST_LEARNED = 0.01


class Tempered(Ranking):
    """An objective whose scores are divided by a temperature; `learn_temperature` makes it a parameter."""

    averaged: ClassVar[bool] = True
    temperature: Annotated[Number, Field(ge=COLDEST)] = 0.1
    learn_temperature: Flag = False

    def start_learned(self, given: ObjectiveContext) -> dict[str, Tensor]:
        """The logarithm of the temperature, where it is learned."""
        return {"log_temperature": torch.tensor(math.log(self.temperature))} if self.learn_temperature else {}

    def leads(self, queries: Queries, scores: Tensor) -> Tensor:
        """How far scores of the queries lie above those with their own, over the temperature, in single precision.

        Half precision ends at 65,504, and at a low temperature differences are exact where quotients are not.
        """
        above = wide(scores) - wide(own_scores(queries))
        if not self.learn_temperature:
            return above.div_(self.temperature)
        learned, coldest = queries.learned["log_temperature"], math.log(min(COLDEST_LEARNED, self.temperature))
        bounded = learned + (learned.clamp(min=coldest) - learned).detach()  # at its bound it still has a gradient
        return above / bounded.exp()

    def rivals(self, queries: Queries) -> Tensor:
        """The leads of each query's negatives, and of its own, which is 0: (queries, pairs)."""
        siblings = queries.positives & ~own_places(queries)  # neither asked for by this query nor negatives
        return self.leads(queries, queries.scores).masked_fill_(siblings, -torch.inf)

    def stuck(self, batch: Summary, total: float) -> bool:
        """Nothing to be stuck in: where all scores are equal, the gradient still tells pairs from negatives."""
        return False


def wide(scores: Tensor) -> Tensor:
    """Scores in at least single precision."""
    return scores if scores.dtype == torch.float64 else scores.float()
