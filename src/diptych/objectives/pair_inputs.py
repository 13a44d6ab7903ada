"""What a caller passes to an objective for one batch of pairs, checked and turned into what the objective reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diptych.data.sampling.extras import Extras
from diptych.errors import ScoreError
from diptych.models.layers.precision import at_least_float32
from diptych.objectives.extras import ClassifierInputs, WithinScores
from diptych.objectives.given_extras import GivenExtras, check_extras, tensors_of
from diptych.objectives.input_checks import check_device, check_flags, check_floats, checks_values, refuse_where
from diptych.objectives.labels import Labels, integers, same_group
from diptych.objectives.similarity import ComparedPairs, Similarity

if TYPE_CHECKING:
    from diptych.objectives.objective import Objective


class PairInputs(NamedTuple):
    """The arguments of a call to an objective; see `Objective.__call__`."""

    scores: Tensor | None = None
    groups: Labels | None = None
    positives: Tensor | None = None
    images: Tensor | None = None
    texts: Tensor | None = None
    similarity: Similarity = "cosine"
    classes: Labels | None = None
    extras: Sequence[Any] = ()

    def scored(self, objective: Objective) -> tuple[Tensor, Tensor, Extras]:
        """The scores, the positives and the extras of the batch, in at least single precision.

        An objective that reads no scores gets none: (pairs, 0). Raises ScoreError if something cannot be used.
        """
        compared = self._compared()
        if compared is None:
            scores = self._given_scores(each_pair=not objective.scores_all_pairs)
        elif objective.reads_scores:
            scores = compared.scores()
        else:
            scores = compared.images.new_empty(len(compared.images), 0)
        if self.extras != ():
            check_extras(self.extras, len(scores), scores.device)
        positives = self._positives(scores)
        return at_least_float32(scores), positives, self._all_extras(objective, compared)

    def check_finite(self, total: Tensor) -> None:
        """If the loss is not finite, raise a ScoreError that names the first value that is not, if any."""
        if torch.compiler.is_compiling() or not checks_values(total.device) or math.isfinite(total.item()):
            return
        named = {"scores": self.scores, "images": self.images, "texts": self.texts}
        given = [(name, value) for name, value in named.items() if value is not None]
        for name, value in [*given, *tensors_of(self.extras)]:
            refuse_where(value.isnan(), name, "not a number (NaN)")
        for name, value in given:
            refuse_where(value.isinf(), name, "infinite")

    def _compared(self) -> ComparedPairs | None:
        """The embeddings, ready to be scored; None if scores were given instead."""
        if self.images is None and self.texts is None:
            if self.scores is None:
                raise ScoreError("nothing to compute a loss of; pass scores, or images= and texts=")
            return None
        if self.scores is not None:
            raise ScoreError("got both scores and embeddings; pass either scores, or images= and texts=")
        if self.images is None or self.texts is None:
            raise ScoreError("got embeddings of one side only; pass both images= and texts=")
        compared = ComparedPairs(self.images, self.texts, self.similarity)
        compared.check()
        return compared

    def _given_scores(self, *, each_pair: bool) -> Tensor:
        """The given scores, (pairs, pairs); with `each_pair`, (pairs, 1) will do."""
        check_floats("scores", self.scores)
        assert self.scores is not None
        shape = tuple(self.scores.shape)
        if len(shape) != 2 or not (shape[0] == shape[1] or (each_pair and shape[1] == 1)):
            raise ScoreError(
                f"scores of shape {shape}; pass (pairs, pairs), where row k and column k are the image and the text "
                "of the k-th pair; an image that is in several pairs has several rows: scores[image_of]"
            )
        return self.scores

    def _positives(self, scores: Tensor) -> Tensor:
        """The positives: (pairs, pairs), or (pairs, 1) if each pair was scored by itself."""
        mask, pairs = self.positives, len(scores)
        if mask is None:
            mask = same_group(self.groups, pairs, scores.device)
        else:
            if self.groups is not None:
                raise ScoreError("got both groups and positives; pass one of them, as groups define the positives")
            _check_mask(mask, pairs, scores.device)
        return mask.diagonal()[:, None] if scores.shape[1] == 1 else mask

    def _all_extras(self, objective: Objective, compared: ComparedPairs | None) -> Extras:
        """The given extras, and those that are derived from embeddings."""
        name, extras = type(objective).__name__, list(self.extras)
        kinds = {type(extra) for extra in extras}
        if "within" in objective.needs and WithinScores not in kinds:
            if compared is None:
                raise ScoreError(
                    f"{name} compares images with images and texts with texts; pass images= and texts= instead of "
                    "scores, or extras=[WithinScores(...)]"
                )
            extras.append(compared.within())
        if "classes" in objective.needs and ClassifierInputs not in kinds:
            extras.append(self._classifier_inputs(objective))
        elif self.classes is not None:
            raise ScoreError(f"{name} was given classes, which it does not read; leave classes= out")
        return GivenExtras(name, extras)

    def _classifier_inputs(self, objective: Objective) -> ClassifierInputs:
        """The embeddings as features, and the class of each pair."""
        name, options = type(objective).__name__, objective.need_options("classes")
        if options is not None and (options.clusters or options.sampled):
            raise ScoreError(f"{name}: clusters and sampled work in `diptych train` only; leave them out")
        if self.images is None or self.texts is None or self.classes is None:
            raise ScoreError(f"{name} classifies embeddings; pass images=, texts= and classes=, the class of each pair")
        rows = torch.arange(len(self.images), device=self.images.device)
        classes = integers(self.classes, len(rows), rows.device, "classes")
        return ClassifierInputs(self.images, self.texts, rows, rows, classes)


def _check_mask(mask: Tensor, pairs: int, device: torch.device) -> None:
    """Raise a ScoreError unless the mask can tell the positives of a batch."""
    check_flags("positives", mask)
    if mask.shape != (pairs, pairs):
        raise ScoreError(f"positives of shape {tuple(mask.shape)} for {pairs} pairs; pass (pairs, pairs)")
    check_device("positives", mask, device)
    if checks_values(device) and not mask.diagonal().all():
        pair = int((~mask.diagonal()).nonzero()[0])
        raise ScoreError(
            f"positives[{pair}, {pair}] is False, which leaves pair {pair} without its positive; row k and column k "
            "are the k-th pair, so set the diagonal to True"
        )
