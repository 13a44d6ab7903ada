"""What an objective receives and returns.

An objective is a pure function of tensors: a scored batch goes in, named terms and their sum come out. It declares in
`needs` what it reads beyond the scores; `diptych.training.needs` supplies it.

`loss` is what an objective defines and what the training engine calls. Calling the objective itself is for anybody's
loop: it checks what it is given, makes the scored batch, and returns the loss as a tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from diptych.data.sampling.extras import NO_EXTRAS, Extras
from diptych.errors import ScoreError
from diptych.models.layers.precision import without_autocast
from diptych.objectives.input_checks import check_device
from diptych.objectives.labels import Labels
from diptych.objectives.loss_tensor import LossTensor
from diptych.objectives.module import ObjectiveModule
from diptych.objectives.pair_inputs import PairInputs
from diptych.objectives.similarity import Similarity
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

    @property
    def reads_scores(self) -> bool:
        """Whether it reads the scores of a batch at all; if not, none are computed from embeddings."""
        return True

    @abstractmethod
    def loss(self, batch: ScoredPairs) -> Loss:
        """Compute the loss of a batch."""

    def __call__(
        self,
        scores: Tensor | None = None,
        *,
        groups: Labels | None = None,
        positives: Tensor | None = None,
        images: Tensor | None = None,
        texts: Tensor | None = None,
        similarity: Similarity = "cosine",
        classes: Labels | None = None,
        extras: Sequence[Any] = (),
    ) -> LossTensor:
        """The loss of a batch of pairs, to call `backward` on; its terms are in `.terms`.

        Pass either `scores`, (pairs, pairs), in which row k and column k are the image and the text of the k-th pair,
        or `images` and `texts`, one row per pair, which are compared by `similarity`: "cosine", "dot", or a function
        of images and texts that returns their scores, higher for better matches.

        Pairs with the same entry in `groups`, integers or strings, are never each other's negatives. Or `positives`,
        (pairs, pairs), marks what is not a negative. By default that is only the pair itself.

        `classes` is the class of each pair, for objectives that classify. `extras` holds what else an objective
        reads, such as `OfflineScores`. Half precision is computed in single precision, also within `torch.autocast`.

        Raises ScoreError if something cannot be used.
        """
        inputs = PairInputs(scores, groups, positives, images, texts, similarity, classes, extras)
        return self.evaluate(inputs, _NoParameters(self))

    def evaluate(self, inputs: PairInputs, parameters: Mapping[str, Tensor]) -> LossTensor:
        """The loss of what a caller passed, with the objective's own parameters."""
        scores, positives, extras = inputs.scored(self)
        for name in parameters:
            check_device(name, parameters[name], scores.device)
        batch = ScoredPairs(scores, positives, extras, parameters)
        self.check(batch)
        with without_autocast(scores.device):
            loss = self.loss(batch)
            total = loss.total
        inputs.check_finite(total)
        return LossTensor.of(total, loss.terms, loss.error_rates)

    def check(self, batch: ScoredPairs) -> None:
        """Raise a ScoreError if a caller's batch does not fit; batches of the training engine are not checked."""
        return

    def as_module(self, *, embedding_dim: int | None = None, **sizes: int) -> ObjectiveModule:
        """The objective as a torch module that holds its parameters, if any, and is called in the same way.

        `sizes` are what the parameters depend on: a classifier needs `classes` and `embedding_dim`.
        """
        given = sizes if embedding_dim is None else {"embedding_dim": embedding_dim, **sizes}
        for name, size in given.items():
            if not isinstance(size, int) or size < 1:
                raise ScoreError(f"{type(self).__name__}.as_module({name}={size!r}): pass an integer of 1 or more")
        try:
            initial = self.initial_parameters(ObjectiveContext(embedding_dim or 0, sizes))
        except KeyError as missing:
            raise ScoreError(f"{type(self).__name__} needs a size: as_module({missing.args[0]}=...)") from None
        return ObjectiveModule(self, initial)

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
        """What a plateau or a collapse looks like, a semicolon, and what to do about it."""
        return "lower optimiser.rate"

    def initial_parameters(self, context: ObjectiveContext) -> dict[str, Tensor]:
        """The initial values of the objective's own trainable parameters, by name; most have none."""
        return {}


class _NoParameters(Mapping[str, Tensor]):
    """The parameters of an objective that is called by itself; one that needs any must become a module."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def __getitem__(self, name: str) -> Tensor:
        raise ScoreError(
            f"{type(self._objective).__name__} has a parameter to train, {name!r}; call as_module() once, give its "
            "parameters() to the optimiser, and call the module instead"
        )

    def get(self, name: str, default: Any = None) -> Any:
        return default

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
