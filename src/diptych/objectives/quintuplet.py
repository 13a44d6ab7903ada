"""The adaptive offline quintuplet loss: hinges against the batch's hardest negative and against mined ones.

For a pair (i, t), with S its score, t_on and i_on the hardest negatives of the batch, t_off and i_off drawn from mined
lists, i~ an image of t_off's group and t~ a text of i_off's group:

    Eq. 3, offline triplets:     [m1 - S + S(i, t_on)]+  +  [m2 - S + S(i, t_off)]+, and so for the images
    Eq. 4, offline quintuplets:  ... + [m2 - S + S(i_off, t_off)]+ + [m2 - S + S(i~, t~)]+
    Eq. 5, adaptive, instead of the first:  (beta - (S(i, t_off) - S(i, t_on)) / alpha) [m1 - S + S(i, t_on)]+

Reference: Chen, Deng, Luo 2020, Adaptive Offline Quintuplet Loss for Image-Text Matching, ECCV.
Needs: scores of the batch, the positives mask, and offline scores (a stage with an `offline` table).
When to use it: a second round, from scratch, with lists that a first round has mined.
Relation to others: without `derived` and `adaptive` it is Eq. 3, without `adaptive` Eq. 4. The weights of Eq. 5 carry
gradient, as its Eq. 6 needs, and are not clamped: they are negative once S_off - S_on exceeds alpha beta. Table 3's
rows are settings: `online = false` (OnlyOffline), `derived = "online"` (OnlineQuin), `adaptive = "positive"` (without
OfflineAdap), and `squared` the squares that section 3.3 speaks of. Summed over the pairs, as the hinges are.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from diptych.objectives.objective import Loss, Objective, OfflineScores, ScoredPairs, Summary
from diptych.settings import Flag, Number


class Quintuplet(Objective):
    """Online, offline and derived hinges; see the module's description."""

    name: Literal["quintuplet"] = "quintuplet"
    needs_offline = True
    margin: Annotated[Number, Field(ge=0)] = 0.2
    offline_margin: Annotated[Number, Field(ge=0)] = 0.0
    online: Flag = True
    derived: Literal["offline", "online", "none"] = "offline"
    adaptive: Literal["offline", "positive", "none"] = "offline"
    alpha: Annotated[Number, Field(gt=0)] = 0.3
    beta: Annotated[Number, Field(gt=0)] = 1.5
    squared: Flag = False

    def __call__(self, batch: ScoredPairs) -> Loss:
        """Both directions of each kind as one term: online, offline, derived."""
        assert batch.offline is not None, "checked before training began"
        own, offline = batch.scores.diagonal(), batch.offline
        negatives = batch.scores.masked_fill(batch.positives, -torch.inf)
        near_text, text_place = negatives.max(1)  # (pairs,): the hardest text of each image
        near_image, image_place = negatives.max(0)
        terms = {}
        if self.online:
            texts = self._online(own, near_text, offline.text, offline)
            images = self._online(own, near_image, offline.image, offline)
            terms["online"] = texts + images
        terms["offline"] = self._offline(own, (offline.text, offline.image), offline.drawn)
        if self.derived == "offline":
            terms["derived"] = self._offline(own, (offline.both, offline.derived), offline.apart)
        elif self.derived == "online":
            apart = ~batch.positives[image_place, text_place] & near_text.isfinite()
            pairs = (batch.scores[image_place, text_place], batch.scores[text_place, image_place])
            terms["derived"] = self._offline(own, pairs, apart)
        return Loss(terms)

    def _online(self, own: Tensor, near: Tensor, far: Tensor, offline: OfflineScores) -> Tensor:
        """The hinges against the batch's hardest, (pairs,) scores, each with its weight; `far` are offline scores."""
        there = near.isfinite()  # a batch of one group has no negatives
        near = near.masked_fill(~there, 0)
        hinges = self._hinges(self.margin - own + near)
        if self.adaptive != "none":
            far = torch.where(offline.drawn, far, near) if self.adaptive == "offline" else own
            hinges = (self.beta - (far - near) / self.alpha) * hinges
        return hinges.masked_fill(~there, 0).sum()

    def _offline(self, own: Tensor, negatives: tuple[Tensor, Tensor], counts: Tensor) -> Tensor:
        """The hinges of each pair against two negatives, where they count."""
        hinges = [self._hinges(self.offline_margin - own + scores) for scores in negatives]
        return sum(hinges[1:], hinges[0]).masked_fill(~counts, 0).sum()

    def _hinges(self, differences: Tensor) -> Tensor:
        hinges = differences.clamp(min=0)
        return hinges.square() if self.squared else hinges

    def stuck(self, batch: Summary, total: float) -> bool:
        """Stuck where all scores are equal: every hinge is its margin, and the weights are beta."""
        power = 2 if self.squared else 1
        weight = 0.0 if not self.online else 1.0 if self.adaptive == "none" else self.beta
        kinds = 2 if self.derived == "none" else 4
        trap = 2 * weight * self.margin**power + kinds * self.offline_margin**power  # a pair
        near = 0.01 * max(trap, self.margin)  # hinges without a margin cost nothing there
        equal = batch.highest - batch.lowest < 0.25 * self.margin
        return equal and abs(total / len(batch.positives) - trap) < near

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        return (
            "the loss stands at what equal scores cost and all embeddings are equal; start with an epoch of sum of "
            "hinges as a stage before, lower optimiser.rate, or use larger batches (batches.size)"
        )
