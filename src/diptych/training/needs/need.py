"""What every need is: it supplies objectives with something beyond scores, from sampling to scoring.

An objective lists its needs by name; a need's name is the name of its module in this package, that of an entry point,
or `module:Class`. Everything about a need is in one module: how it is prepared, what it draws for each pair (a
`PairExtra` of `data/sampling/pairs.py`), the value that objectives find in `ScoredPairs.extras`, and what it keeps in
snapshots. The engine only calls the methods below.

A batch that is trained in chunks is never scored as a whole, so only `within` works there; `compatibility` refuses
other needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import Self

from diptych import plugins, registry
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.pairs import EpochExtension
from diptych.errors import PluginError, RecipeError, did_you_mean
from diptych.models.matcher import EncodedBatch
from diptych.objectives.objective import Loss

if TYPE_CHECKING:
    from diptych.training.context import StageContext


class PairScorer(Protocol):
    """What scores encodings: a matcher, or several ranks together."""

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The score of all images with all texts, (images, texts)."""
        ...

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The score of image k with text k: (pairs,)."""
        ...


@dataclass(frozen=True)
class EncodedPairs:
    """The encodings of a batch, and the rows of each pair's image and text.

    Rows beyond `image_count` and `text_count` belong to what was drawn in addition to the pairs.
    """

    matcher: PairScorer
    encoded: EncodedBatch
    image_of: Tensor  # (pairs,)
    text_of: Tensor  # (pairs,)
    image_count: int
    text_count: int
    text_repeats: bool  # whether any text is in more than one pair; if none is, text k belongs to pair k

    @cached_property
    def images(self) -> Tensor:
        """The encodings of the pairs' distinct images."""
        return self.encoded.images[: self.image_count]

    @cached_property
    def texts(self) -> Tensor:
        """The encodings of the pairs' distinct texts."""
        return self.encoded.texts[: self.text_count]

    def text_columns(self, scores: Tensor) -> Tensor:
        """Scores with distinct texts, (rows, texts), as scores with the text of each pair, (rows, pairs)."""
        return scores[:, self.text_of] if self.text_repeats else scores


class Need(ABC):
    """Supplies one need of an objective during one stage."""

    name: ClassVar[str]

    @classmethod
    def prepare(cls, context: StageContext) -> Self:  # noqa: ARG003
        """Get ready for a stage; this may take long and may raise RunError or DataError."""
        return cls()

    @property
    def epoch_extension(self) -> EpochExtension | None:
        """What the sampler draws for it in each epoch, if anything."""
        return None

    @property
    def size(self) -> int:
        """The size that the objective's parameters depend on, such as the number of classes."""
        return 0

    def make_parameters(self, initial: dict[str, Tensor]) -> nn.ParameterDict | None:
        """Create the objective's parameters from their initial values, which may be changed in place.

        None lets the engine create one parameter per value. At most one need of an objective may do it itself.
        """
        return None

    def narrow(self, batch: PairBatch, encode: Callable[[PairBatch], EncodedPairs]) -> PairBatch:
        """The batch without what will not count; called first in each step, without gradients.

        `encode` encodes a batch as in evaluation, without dropout and with the running statistics of batch norm.
        """
        return batch

    def before_step(self, batch: PairBatch, optimiser: Optimizer, device: torch.device) -> None:
        """Called before a batch is encoded."""
        return

    @abstractmethod
    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> Any:
        """The value that the objective looks up by its type in `extras`; None if this stage does not draw it."""

    def after_loss(self, batch: PairBatch, loss: Loss) -> None:
        """Called with the loss of a batch before the optimiser's step, on all ranks."""
        return

    def after_step(self, optimiser: Optimizer) -> None:
        """Called after the optimiser's step."""
        return

    def state(self) -> dict[str, Tensor]:
        """What a snapshot must keep to resume, by names that begin with a prefix of this need."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Resume with the tensors of a snapshot."""
        return

    def reported(self) -> dict[str, float]:
        """Numbers for the epoch's line in the journal, by name."""
        return {}

    def saved_with_weights(self, parameters: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What to save beside the best weights for a later stage: tensors, and a header."""
        return {}, {}


def find_need(name: str) -> type[Need]:
    """The class of a need: from the module of its name, `module:Class` beside a plug-in, or from an entry point.

    Only objectives name needs, so a reference is that of code which the user allowed or installed.
    """
    if ":" in name or name in registry.plugin_names("training.needs"):
        return _plugin_need(name)
    known = registry.module_names("training.needs")
    if name not in known:
        raise RecipeError(f"the objective's need {name!r}: no such need; {did_you_mean(name, known)}")
    for value in vars(import_module(f"diptych.training.needs.{name}")).values():
        if isinstance(value, type) and issubclass(value, Need) and getattr(value, "name", None) == name:
            return value
    raise LookupError(f"diptych.training.needs.{name} has no Need named {name!r}")


def _plugin_need(name: str) -> type[Need]:
    try:
        found = plugins.load_reference(name, trusted=True) if ":" in name else plugins.load_installed("needs", name)
    except PluginError as reason:
        raise RecipeError(f"the objective's need {name!r}: {reason}") from reason
    if isinstance(found, type) and issubclass(found, Need) and hasattr(found, "name"):
        return found
    raise RecipeError(f"the objective's need {name!r}: not a subclass of Need with a name")
