"""Logistic regression on pairs that belong together and pairs that do not: the similarity network's loss.

    sum_ij log(1 + exp(-z_ij p_ij)),  z = +1 for a pair of the corpus, -1 for one with a rival        (Eq. 7)

Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, section 3.3.
Needs: each pair's own score and those of the rivals drawn for it (`batches.rivals`); nothing else of the batch.
When to use it: with `similarity_net`, whose score is a logit.
Relation to others: every pair is a question of its own, where the hinges compare. The paper writes a sum; here it is
divided by the number of pairs, so that the rate of the optimiser does not depend on the batch. The paper finds that as
many positives as negatives are needed: one rival a pair gives that, and with several `balanced` lets all negatives
together weigh as much as all positives.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch.nn.functional import softplus

from diptych.objectives.objective import Loss, Objective, ScoredPairs, Summary
from diptych.settings import Flag

UNDECIDED = 0.02  # logits this close to 0 say nothing


class Logistic(Objective):
    """A yes or a no for each pair and each of its rivals; see the module's description."""

    name: Literal["logistic"] = "logistic"
    pairs_only: ClassVar[bool] = True
    balanced: Flag = True

    def __call__(self, batch: ScoredPairs) -> Loss:
        """What pairs lose and what rivals lose, as terms; a rival at minus infinity is not there."""
        pairs = len(batch.scores)
        rivals = ~batch.positives & (batch.scores > -torch.inf)
        positive = softplus(-batch.scores[batch.positives]).sum() / pairs
        negative = softplus(batch.scores[rivals]).sum() / pairs
        if self.balanced:
            negative = negative * batch.positives.sum() / rivals.sum().clamp(min=1)
        return Loss({"positive": positive, "negative": negative}, averaged=True)

    def stuck(self, batch: Summary, total: float) -> bool:
        """Stuck where every score is about 0, whatever the pair: each costs log 2.

        Where a rival lacks, the lowest score says nothing; but such a loss without a score above 0 has none far below.
        """
        undecided = abs(batch.highest) < UNDECIDED and (batch.lowest > -UNDECIDED or math.isinf(batch.lowest))
        return undecided and total > 2 * math.log(2) * (1 - UNDECIDED)

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        return "every pair scores about 0, as if nothing was known of it; raise optimiser.rate, or train longer"
