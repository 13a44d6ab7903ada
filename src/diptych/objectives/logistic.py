"""Logistic regression on matching and non-matching pairs: the similarity network's loss."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diptych.objectives.extras import NegativeScores
from diptych.objectives.objective import Loss, Objective, ScoredPairs, ScoreSummary
from diptych.settings import Flag

UNDECIDED = 0.02  # logits this close to 0 carry no decision


class Logistic(Objective):
    """Logistic regression on matching and non-matching pairs: the similarity network's loss.

        sum_ij log(1 + exp(-z_ij p_ij)),  z = +1 for a pair of the corpus, -1 for one with a drawn negative    (Eq. 7)

    Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, section 3.3.

    Needs: each pair's own score and those of the negatives drawn for it (`batches.rivals` or `phrases`). Called with
    the scores of all pairs and no `NegativeScores`, all positives and all negatives of the batch count.

    When to use it: with `similarity_net`, whose score is a logit.

    Relation to others: each pair is classified by itself, where hinges compare pairs. The paper writes a sum; here it
    is divided by the number of pairs, so that the learning rate does not depend on the batch size. The paper finds that
    training needs as many positives as negatives: one negative per pair gives that, and with more of them `balanced`
    weighs all negatives together as much as all positives.

    - `balanced`: weighs all negatives together as much as all positives.
    """

    name: Literal["logistic"] = "logistic"
    scores_all_pairs: ClassVar[bool] = False
    balanced: Flag = True

    @property
    def needs(self) -> tuple[str, ...]:
        """The negatives drawn for each pair."""
        return ("negatives",)

    def loss(self, batch: ScoredPairs) -> Loss:
        """The losses of positives and negatives as terms; a negative at minus infinity does not exist."""
        scores, is_positive = _with_negatives(batch)
        pairs = len(scores)
        is_negative = ~is_positive & (scores > -torch.inf)
        positive = softplus(-scores[is_positive]).sum() / pairs
        if _is_drawn(batch):
            negative = softplus(scores[is_negative]).sum() / pairs
        else:  # selecting almost all of a large matrix would take longer than computing all of it
            negative = softplus(scores).masked_fill(is_positive, 0).sum() / pairs
        if self.balanced:
            negative = negative * is_positive.sum() / is_negative.sum().clamp(min=1)
        return Loss({"positive": positive, "negative": negative}, is_mean=True)

    def summary(self, batch: ScoredPairs) -> ScoreSummary:
        """The range of all scores, those of the negatives included."""
        return ScoreSummary.of(*_with_negatives(batch))

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Whether every score is about 0, at a loss of log 2 per pair and negative.

        If a negative is missing, the lowest score is unknown; but at such a loss, with no score above 0, none is far
        below 0.
        """
        undecided = abs(batch.highest) < UNDECIDED and (batch.lowest > -UNDECIDED or math.isinf(batch.lowest))
        return undecided and total > 2 * math.log(2) * (1 - UNDECIDED)

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return "every pair scores about 0, so nothing is told apart; raise optimiser.rate, or train longer"


def _is_drawn(batch: ScoredPairs) -> bool:
    """Whether the negatives were drawn for each pair; otherwise they are those of the batch."""
    return batch.scores.shape[1] == 1 or batch.extras.get(NegativeScores) is not None


def _with_negatives(batch: ScoredPairs) -> tuple[Tensor, Tensor]:
    """The scores of each pair and its negatives, (pairs, 1 + negatives), and which of them are positives."""
    if not _is_drawn(batch):
        return batch.scores, batch.positives
    drawn = batch.extras[NegativeScores]
    own = batch.scores if batch.scores.shape[1] == 1 else batch.scores.diagonal()[:, None]
    negatives = [side for side in (drawn.images, drawn.texts) if side is not None]
    scores = torch.cat([own, *negatives], dim=1)
    is_positive = torch.zeros_like(scores, dtype=torch.bool)
    is_positive[:, 0] = True
    return scores, is_positive
