"""The adaptive offline quintuplet loss: hinges against the hardest negatives of the batch and mined negatives."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor

from diptych.errors import ScoreError
from diptych.objectives.extras import OfflineScores, RampOptions, RampShare
from diptych.objectives.objective import Loss, Objective, ScoredPairs, ScoreSummary
from diptych.settings import Count, Flag, Number, Settings

LEFT = 0.9  # a plateau has been left when the smoothed loss is below this share of its value for equal scores


def _steps_or_plateau(value: object) -> object:
    if value == "plateau" or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise PydanticCustomError("after", "use 'plateau' or a number of steps, 0 or more")


class OfflineRamp(Settings):
    """When the offline part of the loss begins to count, and over how many steps it is ramped up.

    `after` is a number of steps of the stage, or "plateau": once the online hinges, smoothed over about 50 steps, are
    10% below their value for equal scores.
    """

    after: Annotated[Literal["plateau"] | int, BeforeValidator(_steps_or_plateau)] = "plateau"
    steps: Count = 300


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
    "positive"` (without OfflineAdap); `squared` with `adaptive = "none"` gives the squared hinges mentioned in section
    3.3. The loss is summed over the pairs.

    From scratch, all scores soon become nearly equal, and the loss stays on a plateau of 2 m1 beta for several times as
    many steps as max of hinges alone stays at 2 m1. With `offline_ramp`, which the paper does not have, training begins
    with max of hinges, and r rises from 0 to 1 linearly:

        (1 - r) [m1 - S + S(i, t_on)]+  +  r (the loss of Eq. 5)

    - `margin`: m1, for the hardest negatives of the batch.
    - `offline_margin`: m2, for mined negatives.
    - `online`: whether the hardest negatives of the batch count.
    - `derived`: where the quintuplets of Eq. 4 come from: "offline" (mined negatives), "online" (those of the batch),
      or "none".
    - `adaptive`: what the weights of Eq. 5 are computed from: "offline" scores, "positive" scores, or "none" for no
      weights.
    - `alpha`, `beta`: of Eq. 5.
    - `squared`: squares the hinges; with weights (`adaptive`), it is neither Eq. 5 nor section 3.3.
    - `offline_ramp`: ramps up all but the plain hinges against the negatives of the batch: `after` a number of steps,
      or after the "plateau", over `steps` steps; by default all counts from the first step, as in the paper.
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
    offline_ramp: OfflineRamp | None = None

    @field_validator("offline_ramp")
    @classmethod
    def _begins_online(cls, ramp: OfflineRamp | None, fields: ValidationInfo) -> OfflineRamp | None:
        if ramp is not None and not fields.data.get("online", True):
            raise PydanticCustomError("ramp", "begins with the negatives of the batch; leave it out, or online = false")
        if ramp is not None and ramp.after == "plateau" and not fields.data.get("margin", 1):
            raise PydanticCustomError("ramp", "without a margin there is no plateau; set after to a number of steps")
        return ramp

    @property
    def needs(self) -> tuple[str, ...]:
        """Negatives from mined lists, and how far the ramp has come, if there is one."""
        return ("offline",) if self.offline_ramp is None else ("offline", "ramp")

    def need_options(self, need: str) -> RampOptions | None:
        """When the ramp begins."""
        if need != "ramp" or self.offline_ramp is None:
            return None
        after = None if self.offline_ramp.after == "plateau" else self.offline_ramp.after
        return RampOptions(self.offline_ramp.steps, after, "online", LEFT * self._online_plateau)

    def check(self, batch: ScoredPairs) -> None:
        """Raise a ScoreError unless the share of the ramp is one."""
        if not 0 <= self._share(batch) <= 1:
            raise ScoreError(f"RampShare({self._share(batch)}): pass a share from 0 to 1")

    def loss(self, batch: ScoredPairs) -> Loss:
        """Both directions of each kind as one term: online, offline, derived."""
        positive, offline, share = batch.scores.diagonal(), batch.extras[OfflineScores], self._share(batch)
        negatives = batch.scores.masked_fill(batch.positives, -torch.inf)
        hardest_text, text_column = negatives.max(1)  # (pairs,): of each image
        hardest_image, image_row = negatives.max(0)  # (pairs,): of each text
        terms = {}
        if self.online:
            texts = self._online(positive, hardest_text, offline.text, offline.is_drawn, share)
            images = self._online(positive, hardest_image, offline.image, offline.is_drawn, share)
            terms["online"] = texts + images
        terms["offline"] = self._offline(positive, (offline.text, offline.image), offline.is_drawn)
        if self.derived == "offline":
            terms["derived"] = self._offline(positive, (offline.both, offline.derived), offline.is_negative)
        elif self.derived == "online":
            is_negative = ~batch.positives[image_row, text_column] & hardest_text.isfinite()
            pairs = (batch.scores[image_row, text_column], batch.scores[text_column, image_row])
            terms["derived"] = self._offline(positive, pairs, is_negative)
        if share < 1:
            terms |= {name: share * term for name, term in terms.items() if name != "online"}
        return Loss(terms)

    def _share(self, batch: ScoredPairs) -> float:
        """How far the ramp has come."""
        return 1.0 if self.offline_ramp is None else batch.extras[RampShare].share

    def _online(self, positive: Tensor, online: Tensor, offline: Tensor, is_drawn: Tensor, share: float) -> Tensor:
        """The weighted hinges against the hardest negatives of the batch; all tensors are (pairs,)."""
        exists = online.isfinite()  # a batch of one group has no negatives
        online = online.masked_fill(~exists, 0)
        hinges = self._hinges(self.margin - positive + online)
        if self.adaptive != "none":
            reference = torch.where(is_drawn, offline, online) if self.adaptive == "offline" else positive
            weights = self.beta - (reference - online) / self.alpha
            hinges = (1 + share * (weights - 1) if share < 1 else weights) * hinges
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
        weight = 0.0 if not self.online else 1.0 if self.adaptive == "none" else self.beta
        kinds = 2 if self.derived == "none" else 4
        plateau = weight * self._online_plateau + kinds * self._hinge(self.offline_margin)  # per pair
        # On a ramp, it is anywhere between the plateau of the plain hinges and that of the whole loss.
        ends = (plateau, plateau if self.offline_ramp is None else self._online_plateau)
        tolerance = 0.01 * max(*ends, self.margin)  # the plateau is 0 if no term has a margin
        equal = batch.highest - batch.lowest < 0.25 * self.margin
        return equal and min(ends) - tolerance < total / len(batch.positive_counts) < max(ends) + tolerance

    @property
    def _online_plateau(self) -> float:
        """The plain hinges of a pair against the hardest negatives of the batch if all scores are equal."""
        return 2 * self._hinge(self.margin)

    def _hinge(self, difference: float) -> float:
        return difference**2 if self.squared else difference

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return (
            "the loss stays at its value for equal scores, as if all embeddings were equal; add a first stage with one "
            "epoch of sum of hinges, lower optimiser.rate, or use larger batches (batches.size)"
        )
