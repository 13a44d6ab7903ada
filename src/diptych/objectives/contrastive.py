"""Contrastive matching: a pair's score, over a temperature, must stand out from those of its negatives in the batch.

    sum:                 -log( exp(s(i, c) / t) / sum_c' exp(s(i, c') / t) )  +  the same over images       (Eq. 6-8)
    max without margin:  -log( exp(s(i, c) / t) / exp(s(i, c*) / t) )  +  the same over images              (Eq. 9-11)
    max with margin:     [ -log( exp(s(i, c) / t) / exp((s(i, c*) + m) / t) ) ]+  +  the same over images   (Eq. 12-14)

c* is the hardest negative text of the batch.

Reference: Jain and Verma, Contrastive Learning of Visual-Semantic Embeddings: ConVSE is `sum`, ConVSE++ is `max` with a
margin. The sum is the loss of CLIP up to a factor.
Needs: scores of the batch, best cosines, and the positives mask.
When to use it: `sum` starts at once, where max of hinges lies near chance for epochs; it wants large batches. `max`
wants a model that was trained before.
Relation to others: with a margin, `max` is max of hinges divided by (pairs x temperature), and nothing else. There the
temperature only scales the loss, and Adam does not care for the scale of a loss: what it changes is how soon the
gradient is clipped. Without a margin nothing ever stops pushing. The loss is the mean over the pairs. Same-group pairs
are never negatives.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor

from diptych.objectives.hinge import Hinge, hardest_negatives, own_scores
from diptych.objectives.objective import Queries, Summary
from diptych.objectives.temperature import Tempered, wide
from diptych.settings import Number


class Contrastive(Tempered):
    """Cross-entropy over the batch, or a pair against its hardest negatives; see the module's description."""

    name: Literal["contrastive"] = "contrastive"
    negatives: Literal["sum", "max"] = "sum"
    margin: Annotated[Number, Field(ge=0)] | None = None

    @field_validator("negatives")
    @classmethod
    def _no_learned_scale(cls, negatives: str, fields: ValidationInfo) -> str:
        if negatives == "max" and fields.data.get("learn_temperature"):
            message = (
                "with max the temperature only scales the loss and would grow for ever; leave learn_temperature out"
            )
            raise PydanticCustomError("learned", message)
        return negatives

    @field_validator("margin")
    @classmethod
    def _margin_of_max(cls, margin: float | None, fields: ValidationInfo) -> float | None:
        if margin is not None and fields.data.get("negatives") == "sum":
            raise PydanticCustomError(
                "margin",
                "a margin belongs to negatives = 'max'; leave it out, or set all of it: objective={name='contrastive'}",
            )
        return margin

    def lost(self, queries: Queries) -> Tensor:
        """Minus the logarithm of each query's share for its own: (queries,)."""
        if self.negatives == "sum":
            return self.rivals(queries).logsumexp(1)
        lead = wide(hardest_negatives(queries, queries.positives)) - wide(own_scores(queries)).squeeze(1)
        if self.margin is not None:
            return ((lead + self.margin) / self.temperature).clamp(min=0)
        return lead.masked_fill(lead == -torch.inf, 0) / self.temperature  # a query without a negative loses nothing

    def stuck(self, batch: Summary, total: float) -> bool:
        """With a margin, where max of hinges sticks; the others have nothing to be stuck in."""
        if self.margin is None:
            return False
        return Hinge(margin=self.margin).stuck(batch, total * self.temperature * len(batch.positives))

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        return "all embeddings are equal; start from a trained model, use negatives = 'sum', or lower optimiser.rate"
