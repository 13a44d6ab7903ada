"""Softmax cross-entropy with an additive margin: the positive must win by `margin`.

    -log( exp((s+ - m) / T) / (exp((s+ - m) / T) + sum over the negatives of exp(s- / T)) )

Reference: Wang et al., Additive Margin Softmax for Face Verification, equation 6, with the negatives of the batch.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from diptych.objectives.objective import ScoreSummary
from diptych.objectives.ranking import Queries, Ranking
from diptych.settings import Number


class MarginSoftmax(Ranking):
    """See the module docstring."""

    margin: Annotated[Number, Field(ge=0)] = 0.1
    temperature: Annotated[Number, Field(gt=0)] = 0.1
    is_mean: ClassVar[bool] = True

    def per_query_loss(self, queries: Queries) -> Tensor:
        """The loss of each query: (queries,)."""
        siblings = queries.positives & ~queries.is_positive_column  # neither the positive nor negatives
        scores = queries.scores - self.margin * queries.is_positive_column  # (queries, pairs)
        logits = (scores / self.temperature).masked_fill(siblings, -torch.inf)
        return logits.logsumexp(1) - logits.gather(1, queries.positive_column[:, None]).squeeze(1)

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Never: even with equal scores the gradient tells positives from negatives."""
        return False
