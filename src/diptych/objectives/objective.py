"""What an objective takes and returns.

An objective is a pure function of tensors: a scored batch goes in, named terms and their sum come out. Drawing the
batch is not its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from diptych.settings import Settings


@dataclass(frozen=True)
class ScoredPairs:
    """A scored batch of pairs: row k and column k are the image and the text of the k-th drawn pair.

    `scores` is (pairs, pairs), images by texts; `positives` marks the entries whose image and text share a group, the
    diagonal among them.
    """

    scores: Tensor
    positives: Tensor


@dataclass(frozen=True)
class Loss:
    """Named terms; what training minimises is their sum. `averaged` says that they are means over the pairs."""

    terms: dict[str, Tensor]
    averaged: bool = False

    @property
    def total(self) -> Tensor:
        """The sum of the terms."""
        first, *rest = self.terms.values()
        return sum(rest, first)


class Objective(Settings, ABC):
    """Maps a scored batch to a loss; its fields are what a recipe's `objective` table may set."""

    name: str

    @abstractmethod
    def __call__(self, batch: ScoredPairs) -> Loss:
        """Compute the loss of a batch."""

    @abstractmethod
    def stuck(self, batch: ScoredPairs, total: float) -> bool:
        """Whether this batch and its loss lie in a trap of this objective, such as all encodings being equal."""

    @property
    def way_out(self) -> str:
        """What being stuck looks like, and what to do."""
        return "lower optimiser.rate"
