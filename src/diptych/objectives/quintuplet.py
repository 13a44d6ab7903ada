"""The adaptive offline quintuplet loss: hinges against the hardest negatives of the batch and mined negatives."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from diptych.objectives.extras import OfflineScores
from diptych.objectives.objective import Loss, Objective, ScoredPairs, ScoreSummary
from diptych.settings import Flag, Number


class Quintuplet(Objective):
    """The adaptive offline quintuplet loss: hinges against the hardest negatives of the batch and mined negatives.

    For a pair (i, t) with score S, t_on and i_on are the hardest negatives of the batch, t_off and i_off are drawn from
    mined lists, i~ is an image of t_off's group and t~ a text of i_off's group:

        Eq. 3, offline triplets:     [m1 - S + S(i, t_on)]+  +  [m2 - S + S(i, t_off)]+, and the same for images
        Eq. 4, offline quintuplets:  ... + [m2 - S + S(i_off, t_off)]+ + [m2 - S + S(i~, t~)]+
        Eq. 5, adaptive, instead of the first:  (beta - (S(i, t_off) - S(i, t_on)) / alpha) [m1 - S + S(i, t_on)]+

    Reference: Chen, Deng, Luo 2020, Adaptive Offline Quintuplet Loss for Image-Text Matching, ECCV.

    Needs: the scores of the batch, the positives mask, and offline scores (a stage with an `offline` table).

    When to use it: for a second round, from scratch, with lists mined by the model of the first round.

    Relation to others: without `derived` and `adaptive` it is Eq. 3, without `adaptive` Eq. 4. The weights of Eq. 5
    carry gradient, as Eq. 6 requires, and are not clamped: they are negative once S_off - S_on exceeds alpha beta. The
    rows of Table 3 are settings: `online = false` (OnlyOffline), `derived = "online"` (OnlineQuin), `adaptive =
    "positive"` (without OfflineAdap); `squared` gives the squared hinges mentioned in section 3.3. The loss is summed
    over the pairs.

    - `margin`: m1, for the hardest negatives of the batch.
    - `offline_margin`: m2, for mined negatives.
    - `online`: whether the hardest negatives of the batch count.
    - `derived`: where the quintuplets of Eq. 4 come from: "offline" (mined negatives), "online" (those of the batch),
      or "none".
    - `adaptive`: what the weights of Eq. 5 are computed from: "offline" scores, "positive" scores, or "none" for no
      weights.
    - `alpha`, `beta`: of Eq. 5.
    - `squared`: squares the hinges.
    """

    name: Literal["quintuplet"] = "quintuplet"
    margin: Annotated[Number, Field(ge=0)] = 0.2
    offline_margin: Annotated[Number, Field(ge=0)] = 0.0
    online: Flag = True
    derived: Literal["offline", "online", "none"] = "offline"
    adaptive: Literal["offline", "positive", "none"] = "offline"
    alpha: Annotated[Number, Field(gt=0)] = 0.3
    beta: Annotated[Number, Field(gt=0)] = 1.5
    squared: Flag = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Negatives from mined lists."""
        return ("offline",)

    def loss(self, batch: ScoredPairs) -> Loss:
        """Both directions of each kind as one term: online, offline, derived."""
        positive, offline = batch.scores.diagonal(), batch.extras[OfflineScores]
        negatives = batch.scores.masked_fill(batch.positives, -torch.inf)
        hardest_text, text_column = negatives.max(1)  # (pairs,): of each image
        hardest_image, image_row = negatives.max(0)  # (pairs,): of each text
        terms = {}
        if self.online:
            texts = self._online(positive, hardest_text, offline.text, offline.is_drawn)
            images = self._online(positive, hardest_image, offline.image, offline.is_drawn)
            terms["online"] = texts + images
        terms["offline"] = self._offline(positive, (offline.text, offline.image), offline.is_drawn)
        if self.derived == "offline":
            terms["derived"] = self._offline(positive, (offline.both, offline.derived), offline.is_negative)
        elif self.derived == "online":
            is_negative = ~batch.positives[image_row, text_column] & hardest_text.isfinite()
            pairs = (batch.scores[image_row, text_column], batch.scores[text_column, image_row])
            terms["derived"] = self._offline(positive, pairs, is_negative)
        return Loss(terms)

    def _online(self, positive: Tensor, online: Tensor, offline: Tensor, is_drawn: Tensor) -> Tensor:
        """The weighted hinges against the hardest negatives of the batch; all arguments are (pairs,)."""
        exists = online.isfinite()  # a batch of one group has no negatives
        online = online.masked_fill(~exists, 0)
        hinges = self._hinges(self.margin - positive + online)
        if self.adaptive != "none":
            reference = torch.where(is_drawn, offline, online) if self.adaptive == "offline" else positive
            hinges = (self.beta - (reference - online) / self.alpha) * hinges
        return hinges.masked_fill(~exists, 0).sum()

    def _offline(self, positive: Tensor, negatives: tuple[Tensor, Tensor], counts: Tensor) -> Tensor:
        """The hinges of each pair against two negatives, for the pairs that count."""
        hinges = [self._hinges(self.offline_margin - positive + scores) for scores in negatives]
        return sum(hinges[1:], hinges[0]).masked_fill(~counts, 0).sum()

    def _hinges(self, differences: Tensor) -> Tensor:
        hinges = differences.clamp(min=0)
        return hinges.square() if self.squared else hinges

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Whether all scores are equal: every hinge is its margin, and the weights are beta."""
        power = 2 if self.squared else 1
        weight = 0.0 if not self.online else 1.0 if self.adaptive == "none" else self.beta
        kinds = 2 if self.derived == "none" else 4
        plateau = 2 * weight * self.margin**power + kinds * self.offline_margin**power  # per pair
        tolerance = 0.01 * max(plateau, self.margin)  # the plateau is 0 if no term has a margin
        equal = batch.highest - batch.lowest < 0.25 * self.margin
        return equal and abs(total / len(batch.positive_counts) - plateau) < tolerance

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return (
            "the loss stays at its value for equal scores, as if all embeddings were equal; add a first stage with one "
            "epoch of sum of hinges, lower optimiser.rate, or use larger batches (batches.size)"
        )
