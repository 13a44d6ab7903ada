"""Contrastive matching: each pair must stand out from all negatives of the batch at once.

    l = -log( exp(s(i, c) / t) / sum_c' exp(s(i, c') / t) )  -  log( exp(s(i, c) / t) / sum_i' exp(s(i', c) / t) )

Reference: ConVSE, the sum of negatives (Eq. 6-8); the same as the loss of CLIP up to a factor.
Needs: scores of the batch, best cosines, and the positives mask.
When to use it: it starts at once, where max of hinges lies near chance for epochs; it wants large batches.
Relation to others: unlike hinges it has no margin and never quite stops; a low `temperature` makes it look at the
hardest negatives most. The loss is the mean over the pairs. Same-group pairs are never negatives.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field

from diptych.objectives.objective import Loss, Objective, ScoredPairs
from diptych.settings import Number


class Contrastive(Objective):
    """Cross-entropy over the batch in both directions; see the module's description."""

    name: Literal["contrastive"] = "contrastive"
    temperature: Annotated[Number, Field(gt=0)] = 0.07

    def __call__(self, batch: ScoredPairs) -> Loss:
        """Both directions as terms: an image among the batch's texts, a text among the batch's images."""
        logits = batch.scores / self.temperature
        own = logits.diagonal()  # (pairs,)
        others = batch.positives & ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        among = logits.masked_fill(others, -torch.inf)  # the pair itself and its negatives
        return Loss(
            {
                "image_to_text": (among.logsumexp(1) - own).mean(),
                "text_to_image": (among.logsumexp(0) - own).mean(),
            },
            averaged=True,
        )

    def stuck(self, batch: ScoredPairs, total: float) -> bool:
        """Nothing to be stuck in: where all scores are equal, the gradient still tells pairs from negatives."""
        return False
