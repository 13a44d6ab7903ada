"""Contrastive matching: softmax cross-entropy of each pair against its negatives in the batch, with a temperature."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor

from diptych.models.layers.precision import at_least_float32
from diptych.objectives.hinge import Hinge, hardest_negatives
from diptych.objectives.objective import ScoreSummary
from diptych.objectives.ranking import Queries
from diptych.objectives.temperature import Tempered
from diptych.settings import Number


class Contrastive(Tempered):
    """Contrastive matching: softmax cross-entropy of each pair against its negatives in the batch, with a temperature.

        sum:                -log( exp(s(i, c) / t) / sum_c' exp(s(i, c') / t) )  +  the same over images    (Eq. 6-8)
        max without margin: -log( exp(s(i, c) / t) / exp(s(i, c*) / t) )  +  the same over images           (Eq. 9-11)
        max with margin:    [ -log( exp(s(i, c) / t) / exp((s(i, c*) + m) / t) ) ]+  +  the same over images (Eq. 12-14)

    c* is the hardest negative text in the batch.

    Reference: Jain and Verma, Contrastive Learning of Visual-Semantic Embeddings: ConVSE is `sum`, ConVSE++ is `max`
    with a margin. The sum is the loss of CLIP up to a factor.

    Needs: the scores of the batch, preferably cosines, and the positives mask.

    When to use it: `sum` learns from the first step, where max of hinges stays near chance for epochs; it works best
    with large batches. `max` needs a model that is already trained.

    Relation to others: with a margin, `max` equals max of hinges divided by (pairs x temperature). There the
    temperature only scales the loss; Adam is invariant to that scale, so it merely changes how soon the gradient is
    clipped. Without a margin the loss never reaches zero. The loss is the mean over the pairs. Pairs of the same group
    are never negatives.

    - `temperature`: what scores are divided by; the lower it is, the more the hardest negatives count.
    - `learn_temperature`: makes the temperature a parameter; call `as_module()` to train it.
    - `negatives`: "sum" for all negatives of the batch, "max" for the hardest only.
    - `margin`: only with "max"; by default there is none.
    """

    name: Literal["contrastive"] = "contrastive"
    negatives: Literal["sum", "max"] = "sum"
    margin: Annotated[Number, Field(ge=0)] | None = None

    @field_validator("negatives")
    @classmethod
    def _no_learned_scale(cls, negatives: str, fields: ValidationInfo) -> str:
        if negatives == "max" and fields.data.get("learn_temperature"):
            message = (
                "with max the temperature only scales the loss and would grow forever; leave learn_temperature out"
            )
            raise PydanticCustomError("learned", message)
        return negatives

    @field_validator("margin")
    @classmethod
    def _margin_of_max(cls, margin: float | None, fields: ValidationInfo) -> float | None:
        if margin is not None and fields.data.get("negatives") == "sum":
            raise PydanticCustomError(
                "margin",
                "needs negatives = 'max'; leave it out, or replace the whole objective: objective={name='contrastive'}",
            )
        return margin

    def per_query_loss(self, queries: Queries) -> Tensor:
        """The loss of each query: its negative log-likelihood for `sum`, the scaled violation for `max`."""
        if self.negatives == "sum":
            return self.candidate_logits(queries).logsumexp(1)
        hardest = at_least_float32(hardest_negatives(queries, queries.positives))
        violation = hardest - at_least_float32(queries.positive_scores).squeeze(1)
        if self.margin is not None:
            return ((violation + self.margin) / self.temperature).clamp(min=0)
        return violation.masked_fill(violation == -torch.inf, 0) / self.temperature  # 0 for a query without a negative

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """With a margin, as for max of hinges; otherwise never."""
        if self.margin is None:
            return False
        return Hinge(margin=self.margin).has_collapsed(batch, total * self.temperature * len(batch.positive_counts))

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return (
            "the loss stays at its value for equal scores, as if all embeddings were equal; start from a trained "
            "model, use negatives = 'sum', or lower optimiser.rate"
        )
