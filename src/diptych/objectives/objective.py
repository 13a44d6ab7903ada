"""What an objective receives and returns.

An objective is a pure function of tensors: a scored batch goes in, named terms and their sum come out. It declares in
`needs` what it reads beyond the scores; `diptych.training.needs` supplies it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from diptych.data.sampling.extras import NO_EXTRAS, Extras
from diptych.settings import NamedSettings

if TYPE_CHECKING:
    from diptych.objectives.ranking import QuerySource


@dataclass(frozen=True)
class ScoredPairs:
    """A scored batch of pairs: row k and column k are the image and the text of the k-th pair.

    `scores` is (pairs, pairs), images by texts, and `positives` marks the entries whose image and text share a group,
    the diagonal among them. For objectives with `scores_all_pairs = False` both are (pairs, 1): each pair with itself.
    `extras` holds what the objective needs beyond the scores, `parameters` the objective's own trainable parameters.
    """

    scores: Tensor
    positives: Tensor
    extras: Extras = NO_EXTRAS
    parameters: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoreSummary:
    """What is kept of a batch's scores: their range, and the number of positives of each pair's image."""

    lowest: float
    highest: float
    positive_counts: Tensor  # (pairs,)

    @classmethod
    def of(cls, scores: Tensor, positives: Tensor) -> ScoreSummary:
        """Summarise scores; minus infinity marks missing ones and is not counted."""
        scores = scores.detach()
        lowest = float(scores.min())
        if lowest == -torch.inf:
            lowest = float(scores[scores.isfinite()].min())
        return cls(lowest, float(scores.max()), positives.sum(1))


@dataclass(frozen=True)
class Loss:
    """Named terms, whose sum is minimised.

    `is_mean` says that the terms are means over the pairs rather than sums. `model_terms` are contributed by the model
    itself and always means. `error_rates` are shares of misclassified pairs: reported, not minimised.
    """

    terms: dict[str, Tensor]
    is_mean: bool = False
    model_terms: dict[str, Tensor] = field(default_factory=dict)
    error_rates: dict[str, Tensor] = field(default_factory=dict)

    @property
    def total(self) -> Tensor:
        """The sum of the terms."""
        first, *rest = (*self.terms.values(), *self.model_terms.values())
        return sum(rest, first)


@dataclass(frozen=True)
class ObjectiveContext:
    """What an objective must know to create its parameters.

    `sizes` comes from its needs, by name: `sizes["classes"]` is the number of classes.
    """

    embedding_dim: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)


class Objective(NamedSettings, ABC):
    """Maps a scored batch to a loss; its fields are what a recipe's `objective` table may set."""

    scores_all_pairs: ClassVar[bool] = True  # if False, each pair is scored by itself and not against all others
    supports_chunks: ClassVar[bool] = False  # whether the loss can be computed for a few queries at a time
    closed_form: ClassVar[bool] = False  # if True, it belongs to models that solve for the optimum without gradients

    @property
    def needs(self) -> tuple[str, ...]:
        """What it reads in a batch's `extras`; each name is found by `training.needs.need.find_need`."""
        return ()

    def need_options(self, need: str) -> Any:
        """What the objective asks of a need, such as the number of clusters; None for the need's defaults."""
        return None

    @abstractmethod
    def __call__(self, batch: ScoredPairs) -> Loss:
        """Compute the loss of a batch."""

    def chunked_loss(self, source: QuerySource, chunks: Sequence[Tensor], on_share: Callable[[Tensor], Tensor]) -> Loss:
        """The loss over chunks of queries; only for objectives that support chunks."""
        raise NotImplementedError(f"{self.name!r} needs all scores of a batch at once")

    def summary(self, batch: ScoredPairs) -> ScoreSummary:
        """What `has_collapsed` will be asked with."""
        return ScoreSummary.of(batch.scores, batch.positives)

    @abstractmethod
    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Whether a batch whose terms sum to `total` looks degenerate, such as all embeddings being equal."""

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return "lower optimiser.rate"

    def initial_parameters(self, context: ObjectiveContext) -> dict[str, Tensor]:
        """The initial values of the objective's own trainable parameters, by name; most have none."""
        return {}
