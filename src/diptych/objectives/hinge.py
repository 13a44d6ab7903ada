"""Sum of hinges, max of hinges and what lies between: triplet ranking with the negatives of the batch.

    sum:  sum_c' [m - s(i, c) + s(i, c')]+  +  sum_i' [m - s(i, c) + s(i', c)]+        (Faghri et al. 2018, Eq. 5)
    max:  max_c' [m + s(i, c') - s(i, c)]+  +  max_i' [m + s(i', c) - s(i, c)]+        (Eq. 6)
    soft: (sum_c' [.]+^p)^(1/p)  +  (sum_i' [.]+^p)^(1/p),  p = 1 / softness           (the spectrum of section 2.2)
    next: [m + s(i, c') - s(i, c)]+  +  [m + s(i', c) - s(i, c)]+,  i' and c' of one other pair

Reference: VSE++: Improving Visual-Semantic Embeddings with Hard Negatives, BMVC 2018.
Needs: scores of the batch and the positives mask.
When to use it: `max` is VSE++ and the better one once training has warmed up; `sum` (VSE0) starts faster. A number is a
softness between them, 0 being max and 1 being sum, each exactly: all negatives push, the harder the more. `next` takes
the pair that follows in the batch, whose order is random, as the only negative: Eq. 4 of the dual-path paper.
Relation to others: the loss is summed over the pairs, as in the authors' public code and unlike the mean of Eq. 4: the
clipping of the gradient at 2.0 belongs to that scale. Same-group pairs are never negatives; `mask_same_group = false`
reproduces the public code, where only the drawn pair itself is left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from torch import Tensor

from diptych.objectives.objective import Queries, Ranking, Summary
from diptych.settings import Flag, Number

# Beyond this power only the largest hinges count in any precision, and numbers beyond it overflow in some.
STEEPEST = 1e30


def _known_negatives(value: Any) -> Any:
    """Refuse anything else in words of its own: those of a choice between types do not read well."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value in ("max", "sum", "next") or (number and 0 <= value <= 1):
        return float(value) if number else value
    raise PydanticCustomError("negatives", "use 'max', 'sum', 'next' or a softness from 0 (max) to 1 (sum)")


Negatives = Annotated[Literal["max", "sum", "next"] | float, BeforeValidator(_known_negatives)]


class Hinge(Ranking):
    """Hinges over the batch's negatives; see the module's description."""

    name: Literal["hinge"] = "hinge"
    negatives: Negatives = "max"
    margin: Annotated[Number, Field(ge=0)] = 0.2
    mask_same_group: Flag = True

    def lost(self, queries: Queries) -> Tensor:
        """The hinges of each query, taken together: (queries,)."""
        own = own_scores(queries)  # (queries, 1)
        excluded = self._excluded(queries)
        if self.softness == 0:
            # The largest hinge is that of the hardest negative: no other needs to be computed.
            choose = next_negatives if self.negatives == "next" else hardest_negatives
            return (self.margin + choose(queries, excluded) - own.squeeze(1)).clamp(min=0)
        hinges = (self.margin + queries.scores - own).clamp(min=0).masked_fill(excluded, 0)
        return hinges.sum(1) if self.softness == 1 else _between(hinges, self.softness)

    @property
    def softness(self) -> float:
        """Where between max (0) and sum (1) the negatives are taken together; one alone is its own maximum."""
        known = {"max": 0.0, "sum": 1.0, "next": 0.0}
        return known[self.negatives] if isinstance(self.negatives, str) else self.negatives

    def stuck(self, batch: Summary, total: float) -> bool:
        """Hinges stick where every negative scores like the positive: margin x negatives ** softness a query.

        For max of hinges these are 2 x margin a pair; the sum of hinges has no such trap.
        """
        if self.softness == 1:
            return False
        excluded = batch.positives if self.mask_same_group else torch.ones_like(batch.positives)
        negatives = len(excluded) - excluded
        counts = negatives[negatives > 0].double()  # the same for the image and for the text of a pair
        trap = 2 * self.margin * float(counts.pow(self.softness).sum())
        spread = batch.highest - batch.lowest
        return trap > 0 and abs(total - trap) < 0.01 * trap and spread < 0.25 * self.margin

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        level = "2 x margin a pair" if self.softness == 0 else "what equal scores cost"
        return (
            f"the loss stands at {level} and all embeddings are equal; start with an epoch of "
            "negatives = 'sum' as a stage before, lower optimiser.rate, or use larger batches (batches.size)"
        )

    def _excluded(self, queries: Queries) -> Tensor:
        """The entries that are no negatives."""
        return queries.positives if self.mask_same_group else own_places(queries)


def own_scores(queries: Queries) -> Tensor:
    """The score of each query with its own: (queries, 1)."""
    return queries.scores.gather(1, queries.own[:, None])


def own_places(queries: Queries) -> Tensor:
    """Where each query has its own: (queries, pairs), true once a row."""
    columns = torch.arange(queries.scores.shape[1], device=queries.own.device)
    return queries.own[:, None] == columns


def hardest_negatives(queries: Queries, excluded: Tensor) -> Tensor:
    """The best score of each query that is not excluded, (queries,); minus infinity where all are."""
    return queries.scores.masked_fill(excluded, -torch.inf).amax(1)


def next_negatives(queries: Queries, excluded: Tensor) -> Tensor:
    """The score of each query with the first pair behind its own that is not excluded, (queries,); else as above."""
    pairs = excluded.shape[1]
    behind = (torch.arange(pairs, device=excluded.device) - queries.own[:, None] - 1) % pairs  # from 0 on
    steps, found = behind.masked_fill(excluded, pairs).min(1)
    scores = queries.scores.gather(1, found[:, None]).squeeze(1)
    return scores.masked_fill(steps == pairs, -torch.inf)


def _between(hinges: Tensor, softness: float) -> Tensor:
    """The p-norm of each row of hinges, p = 1 / softness, between their maximum and their sum.

    A norm is the sum of what it is taken of, weighted by its gradient. So the weights are enough, and they are never
    infinite: (h / norm)^(p - 1), computed relative to the largest hinge.
    """
    largest = hinges.detach().amax(1, keepdim=True)
    relative = hinges.detach() / torch.where(largest > 0, largest, 1)  # from 0 to 1
    weights = relative.pow(min(1 / softness, STEEPEST) - 1)
    powers = (weights * relative).sum(1, keepdim=True).clamp(min=1)  # below 1 only where all hinges are 0
    return (weights * powers.pow(softness - 1) * hinges).sum(1)
