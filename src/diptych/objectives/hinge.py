"""Triplet ranking with the negatives of the batch: sum of hinges, max of hinges, and anything in between."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from torch import Tensor

from diptych.objectives.objective import ScoreSummary
from diptych.objectives.ranking import Queries, Ranking
from diptych.settings import Flag, Number

# Beyond this power only the largest hinges count in any precision; larger powers overflow in some.
MAX_POWER = 1e30


def _known_negatives(value: Any) -> Any:
    """Refuse anything else with a readable message, unlike pydantic's for a union of types."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value in ("max", "sum", "next") or (number and 0 <= value <= 1):
        return float(value) if number else value
    raise PydanticCustomError("negatives", "use 'max', 'sum', 'next' or a softness from 0 (max) to 1 (sum)")


Negatives = Annotated[Literal["max", "sum", "next"] | float, BeforeValidator(_known_negatives)]


class Hinge(Ranking):
    """Triplet ranking with the negatives of the batch: sum of hinges, max of hinges, and anything in between.

        sum:  sum_c' [m - s(i, c) + s(i, c')]+  +  sum_i' [m - s(i, c) + s(i', c)]+  (Faghri et al. 2018, Eq. 5)
        max:  max_c' [m + s(i, c') - s(i, c)]+  +  max_i' [m + s(i', c) - s(i, c)]+  (Eq. 6)
        soft: (sum_c' [.]+^p)^(1/p)  +  (sum_i' [.]+^p)^(1/p),  p = 1 / softness     (the spectrum of section 2.2)
        next: [m + s(i, c') - s(i, c)]+  +  [m + s(i', c) - s(i, c)]+,  i' and c' of one other pair

    Reference: VSE++: Improving Visual-Semantic Embeddings with Hard Negatives, BMVC 2018.

    Needs: the scores of the batch and the positives mask.

    When to use it: `max` is VSE++ and works better once training has warmed up; `sum` (VSE0) starts faster. A number
    from 0 (exactly max) to 1 (exactly sum) is a softness in between: all negatives contribute, harder ones more. `next`
    uses the next pair of the batch, whose order is random, as the only negative: Eq. 4 of the dual-path paper.

    Relation to others: the loss is summed over the pairs, as in the authors' public code and unlike the mean of Eq. 4;
    clipping the gradient norm at 2.0 assumes that scale. Pairs of the same group are never negatives; `mask_same_group
    = false` reproduces the public code, which excludes only the pair itself.

    - `negatives`: "max", "sum", "next", or a softness from 0 (max) to 1 (sum).
    - `margin`: how much higher the positive should score than a negative.
    - `mask_same_group`: whether pairs of the same group are left out of the negatives.
    """

    name: Literal["hinge"] = "hinge"
    negatives: Negatives = "max"
    margin: Annotated[Number, Field(ge=0)] = 0.2
    mask_same_group: Flag = True

    def per_query_loss(self, queries: Queries) -> Tensor:
        """The combined hinges of each query: (queries,)."""
        positive = queries.positive_scores  # (queries, 1)
        excluded = self._excluded(queries)
        if self.softness == 0:
            # The largest hinge is that of the hardest negative, so no other needs to be computed.
            choose = next_negatives if self.negatives == "next" else hardest_negatives
            return (self.margin + choose(queries, excluded) - positive.squeeze(1)).clamp(min=0)
        hinges = (self.margin + queries.scores - positive).clamp(min=0).masked_fill(excluded, 0)
        return hinges.sum(1) if self.softness == 1 else _between(hinges, self.softness)

    @property
    def softness(self) -> float:
        """How negatives are combined, from 0 (max) to 1 (sum); a single negative is its own maximum."""
        known = {"max": 0.0, "sum": 1.0, "next": 0.0}
        return known[self.negatives] if isinstance(self.negatives, str) else self.negatives

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Whether every negative scores like the positive, at a loss of margin x negatives ** softness per query.

        For max of hinges that is 2 x margin per pair; the sum of hinges does not collapse.
        """
        if self.softness == 1:
            return False
        excluded = batch.positive_counts if self.mask_same_group else torch.ones_like(batch.positive_counts)
        negatives = len(excluded) - excluded
        counts = negatives[negatives > 0].double()  # the same for the image and for the text of a pair
        plateau = 2 * self.margin * float(counts.pow(self.softness).sum())
        spread = batch.highest - batch.lowest
        return plateau > 0 and abs(total - plateau) < 0.01 * plateau and spread < 0.25 * self.margin

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        level = "2 x margin per pair" if self.softness == 0 else "the value for equal scores"
        return (
            f"the loss stays at {level}, as if all embeddings were equal; add a first stage with one epoch of "
            "negatives = 'sum', lower optimiser.rate, or use larger batches (batches.size)"
        )

    def _excluded(self, queries: Queries) -> Tensor:
        """The entries that are not negatives: (queries, pairs)."""
        return queries.positives if self.mask_same_group else queries.is_positive_column


def hardest_negatives(queries: Queries, excluded: Tensor) -> Tensor:
    """The highest score of each query that is not excluded, (queries,); minus infinity if all are."""
    return queries.scores.masked_fill(excluded, -torch.inf).amax(1)


def next_negatives(queries: Queries, excluded: Tensor) -> Tensor:
    """The score of each query with the next pair that is not excluded, (queries,); minus infinity if all are."""
    pairs = excluded.shape[1]
    distance = (torch.arange(pairs, device=excluded.device) - queries.positive_column[:, None] - 1) % pairs
    steps, found = distance.masked_fill(excluded, pairs).min(1)
    scores = queries.scores.gather(1, found[:, None]).squeeze(1)
    return scores.masked_fill(steps == pairs, -torch.inf)


def _between(hinges: Tensor, softness: float) -> Tensor:
    """The p-norm of each row of hinges, p = 1 / softness, which lies between their maximum and their sum.

    A norm equals the sum of its arguments weighted by its gradient, (h / norm)^(p - 1). These weights are computed
    relative to the largest hinge, so they are always finite.
    """
    largest = hinges.detach().amax(1, keepdim=True)
    relative = hinges.detach() / torch.where(largest > 0, largest, 1)  # from 0 to 1
    weights = relative.pow(min(1 / softness, MAX_POWER) - 1)
    powers = (weights * relative).sum(1, keepdim=True).clamp(min=1)  # below 1 only if all hinges are 0
    return (weights * powers.pow(softness - 1) * hinges).sum(1)
