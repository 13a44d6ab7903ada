"""Sum of hinges and max of hinges: triplet ranking with the negatives of the batch.

    sum:  sum_c' [m - s(i, c) + s(i, c')]+  +  sum_i' [m - s(i, c) + s(i', c)]+        (Faghri et al. 2018, Eq. 5)
    max:  max_c' [m + s(i, c') - s(i, c)]+  +  max_i' [m + s(i', c) - s(i, c)]+        (Eq. 6)

Reference: VSE++: Improving Visual-Semantic Embeddings with Hard Negatives, BMVC 2018.
Needs: scores of the batch and the positives mask.
When to use it: `max` is VSE++ and the better one once training has warmed up; `sum` (VSE0) starts faster.
Relation to others: the loss is summed over the pairs, as in the authors' public code and unlike the mean of Eq. 4: the
clipping of the gradient at 2.0 belongs to that scale. Same-group pairs are never negatives; `mask_same_group = false`
reproduces the public code, where only the drawn pair itself is left out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from diptych.objectives.objective import Loss, Objective, ScoredPairs
from diptych.settings import Flag, Number


class Hinge(Objective):
    """Hinges over the batch's negatives; see the module's description."""

    name: Literal["hinge"] = "hinge"
    negatives: Literal["max", "sum"] = "max"
    margin: Annotated[Number, Field(ge=0)] = 0.2
    mask_same_group: Flag = True

    def __call__(self, batch: ScoredPairs) -> Loss:
        """Both directions as terms: an image's negative texts, a text's negative images."""
        own = batch.scores.diagonal()  # (pairs,)
        excluded = self._excluded(batch)
        texts = (self.margin + batch.scores - own[:, None]).clamp(min=0).masked_fill(excluded, 0)
        images = (self.margin + batch.scores - own[None, :]).clamp(min=0).masked_fill(excluded, 0)
        if self.negatives == "max":
            texts, images = texts.amax(1), images.amax(0)  # (pairs,)
        return Loss({"image_to_text": texts.sum(), "text_to_image": images.sum()})

    def stuck(self, batch: ScoredPairs, total: float) -> bool:
        """Max of hinges sticks where every hardest negative scores like the positive: 2 x margin a pair."""
        if self.negatives == "sum":
            return False
        negatives = ~self._excluded(batch)
        trap = self.margin * int(negatives.any(0).sum() + negatives.any(1).sum())
        scores = batch.scores.detach()
        spread = float(scores.max() - scores.min())
        return trap > 0 and abs(total - trap) < 0.01 * trap and spread < 0.25 * self.margin

    @property
    def way_out(self) -> str:
        """What being stuck looks like, and what to do."""
        return (
            "the loss stands at 2 x margin a pair and all embeddings are equal; start with an epoch of "
            "negatives = 'sum' as a stage before, lower optimiser.rate, or use larger batches (batches.size)"
        )

    def _excluded(self, batch: ScoredPairs) -> Tensor:
        """The entries that are no negatives."""
        if self.mask_same_group:
            return batch.positives
        return torch.eye(len(batch.scores), dtype=torch.bool, device=batch.scores.device)
