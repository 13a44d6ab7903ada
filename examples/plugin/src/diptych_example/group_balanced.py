"""An objective with a need of its own: softmax cross-entropy in which every group has the same weight.

An epoch has every text once, so that groups with many texts count more often than others. The need `GroupSizes` tells
the objective how many texts the group of each pair has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy
from typing_extensions import Self

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import PairBatch
from diptych.objectives.objective import Loss, Objective, ScoredPairs, ScoreSummary
from diptych.settings import Number
from diptych.training.context import StageContext
from diptych.training.needs.need import EncodedPairs, Need


@dataclass(frozen=True)
class Sizes:
    """The number of training texts in the group of each pair: (pairs,)."""

    texts: Tensor


class GroupSizes(Need):
    """Counts the texts of each training group once, and looks up those of each batch."""

    name: ClassVar[str] = "group_sizes"

    def __init__(self, groups: Integers, counts: Integers) -> None:
        self._groups, self._counts = groups, counts  # groups in ascending order

    @classmethod
    def prepare(cls, context: StageContext) -> Self:
        """Count the texts of the training groups."""
        return cls(*np.unique(context.train.text_groups, return_counts=True))

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> Sizes:
        """The size of each pair's group."""
        counts = self._counts[np.searchsorted(self._groups, batch.groups)]
        return Sizes(torch.from_numpy(counts).to(pairs.image_of.device))


class GroupBalanced(Objective):
    """Each pair weighs 1 / (texts of its group)."""

    temperature: Annotated[Number, Field(gt=0)] = 0.1

    @property
    def needs(self) -> tuple[str, ...]:
        """The sizes of the groups, by the class beside this one."""
        return (f"{__name__}:GroupSizes",)

    def loss(self, batch: ScoredPairs) -> Loss:
        """The two directions as terms, as weighted means over the pairs."""
        weights = 1 / batch.extras[Sizes].texts
        weights = weights / weights.sum()
        pairs = torch.arange(len(batch.scores), device=batch.scores.device)
        siblings = batch.positives & (pairs[:, None] != pairs)  # not negatives
        logits = (batch.scores / self.temperature).masked_fill(siblings, -torch.inf)
        image_to_text = (weights * cross_entropy(logits, pairs, reduction="none")).sum()
        text_to_image = (weights * cross_entropy(logits.t(), pairs, reduction="none")).sum()
        return Loss({"image_to_text": image_to_text, "text_to_image": text_to_image}, is_mean=True)

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Never: even with equal scores the gradient tells pairs from negatives."""
        return False
