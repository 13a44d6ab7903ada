"""Instance loss: every group is a class, and images and texts share one classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn
from typing_extensions import Self

from diptych.errors import ScoreError
from diptych.models.layers.precision import normalize
from diptych.objectives.extras import ClassifierInputs, ClassOptions
from diptych.objectives.hinge import Hinge, Negatives
from diptych.objectives.input_checks import checks_values
from diptych.objectives.objective import Loss, Objective, ObjectiveContext, ScoredPairs, ScoreSummary
from diptych.objectives.softmax import class_losses
from diptych.objectives.temperature import MIN_TEMPERATURE, initial_log_temperature, learned_temperature
from diptych.settings import Count, Flag, Number

Weight = Annotated[Number, Field(ge=0)]

CLASSIFIER, BIAS = "classifier", "classifier_bias"  # names of the parameters


class Instance(Objective):
    """Instance loss: every group is a class, and images and texts share one classifier.

        L = rank L_rank + visual L_visual + textual L_textual                             (Zheng et al. 2020, Eq. 9)
        L_visual = -log softmax(W^T f_img)(c),  L_textual = -log softmax(W^T f_text)(c)   (Eq. 5-8, the same W)
        L_rank = [m - (s(i, t) - s(i, t'))]+ + [m - (s(i, t) - s(i', t))]+                (Eq. 4, margin 1)

    Reference: Dual-Path Convolutional Image-Text Embeddings with Instance Loss, ACM TOMM 2020, section IV.

    Needs: features of the batch's images and texts and the class of each pair; for the ranking term, scores and
    positives.

    When to use it: alone in a first stage, before the towers agree on anything; then together with the ranking term.

    Relation to others: all terms are means over the pairs. The ranking term is that of `hinge` with one negative, as in
    Eq. 4 of the paper (`next`); `negatives = "max"` takes the hardest of the batch, close to the authors' code, which
    takes the hardest of 256 texts. W has no bias, as in Eq. 5; `bias = true` adds the one of the code. The classifier
    belongs to the training, not to the model.

    - `rank`, `visual`, `textual`: the weights of the terms; a term with weight 0 is not computed.
    - `margin`, `negatives`: of the ranking term, as for `Hinge`.
    - `bias`: adds a bias to the classifier.
    - `temperature`: classifies by cosines: f and the columns of W are divided by their lengths, and the logits by the
      temperature. By default the logits are the inner products of Eq. 5. With cosines, classifying and ranking agree on
      what a good embedding is, and no class gains by its length.
    - `learn_temperature`: makes the temperature a parameter.
    - `sampled`: how many classes each step compares with; by default all.
    - `classes_at_once`: how many classes are computed at a time, which bounds the memory and changes nothing else.
    - `clusters`: joins the groups into this many classes, by K-means of their images' features; by default one class
      per group.
    """

    name: Literal["instance"] = "instance"
    rank: Weight = 0.0
    visual: Weight = 1.0
    textual: Weight = 1.0
    margin: Weight = 1.0
    negatives: Negatives = "next"
    bias: Flag = False
    temperature: Annotated[Number, Field(ge=MIN_TEMPERATURE)] | None = None
    learn_temperature: Flag = False
    sampled: Annotated[int, Field(ge=2, strict=True)] | None = None
    classes_at_once: Count | None = None
    clusters: Annotated[int, Field(ge=2, strict=True)] | None = None

    @field_validator("temperature")
    @classmethod
    def _without_bias(cls, temperature: float | None, fields: ValidationInfo) -> float | None:
        if temperature is not None and fields.data.get("bias"):
            raise PydanticCustomError("bias", "cosines of the classes have no bias; leave out bias or temperature")
        return temperature

    @field_validator("learn_temperature")
    @classmethod
    def _begins_somewhere(cls, is_learned: bool, fields: ValidationInfo) -> bool:
        if is_learned and fields.data.get("temperature") is None:
            raise PydanticCustomError("learned", "set the temperature that learning begins with, such as 0.05")
        return is_learned

    @model_validator(mode="after")
    def _has_terms(self) -> Self:
        if not (self.rank or self._classifies):
            raise PydanticCustomError("terms", "nothing to minimise; set rank, visual or textual above 0")
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        """The class of each pair, unless only the ranking term is left."""
        return ("classes",) if self._classifies else ()

    def need_options(self, need: str) -> ClassOptions:
        """How the groups become classes."""
        return ClassOptions(self.clusters, self.sampled)

    @property
    def reads_scores(self) -> bool:
        """Only for the ranking term."""
        return self.rank > 0

    def check(self, batch: ScoredPairs) -> None:
        """Raise a ScoreError unless features and classes fit the classifier."""
        if not self._classifies:
            return
        inputs, (classes, size) = batch.extras[ClassifierInputs], batch.parameters[CLASSIFIER].shape
        for name, features in (("images", inputs.images), ("texts", inputs.texts)):
            if features.dim() != 2 or features.shape[1] != size:
                raise ScoreError(
                    f"{name} of shape {tuple(features.shape)} for a classifier of embeddings of size {size}; make it "
                    f"for yours with as_module(classes={classes}, embedding_dim=...)"
                )
        if checks_values(inputs.classes.device):
            lowest, highest = (int(end) for end in inputs.classes.aminmax())
            if lowest < 0 or highest >= classes:
                raise ScoreError(
                    f"classes from {lowest} to {highest} for a classifier of {classes}; number them from 0 to "
                    f"{classes - 1}, or make a larger one with as_module"
                )

    def loss(self, batch: ScoredPairs) -> Loss:
        """The terms whose weight is above zero."""
        terms: dict[str, Tensor] = {}
        error_rates: dict[str, Tensor] = {}
        if self.rank:
            share = self.rank / len(batch.scores)
            terms |= {name: term * share for name, term in self._hinge.loss(batch).terms.items()}
        if self._classifies:
            for name, weight, losses, wrong in self._class_terms(batch.extras[ClassifierInputs], batch.parameters):
                terms[name], error_rates[name] = weight * losses.mean(), wrong.float().mean()
        return Loss(terms, is_mean=True, error_rates=error_rates)

    def initial_parameters(self, context: ObjectiveContext) -> dict[str, Tensor]:
        """The classifier's weights, one row per class, and its bias or learned temperature if it has one."""
        if not self._classifies:
            return {}
        classes = context.sizes["classes"]
        if not context.embedding_dim:
            raise ScoreError("Instance classifies embeddings, so it needs their size: as_module(embedding_dim=...)")
        parameters = {CLASSIFIER: nn.init.xavier_uniform_(torch.empty(classes, context.embedding_dim))}
        if self.temperature is not None and self.learn_temperature:
            parameters |= initial_log_temperature(self.temperature)
        return parameters | ({BIAS: torch.zeros(classes)} if self.bias else {})

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """The ranking term alone collapses as hinges do; the gradient of a classifier still tells classes apart."""
        if self._classifies:
            return False
        return self._hinge.has_collapsed(batch, total / self.rank * len(batch.positive_counts))

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return f"{self._hinge.collapse_hint}; or add a first stage with visual = 1 and textual = 1, as the paper does"

    @property
    def _classifies(self) -> bool:
        return self.visual > 0 or self.textual > 0

    @property
    def _hinge(self) -> Hinge:
        return Hinge(margin=self.margin, negatives=self.negatives)

    def _class_terms(
        self, inputs: ClassifierInputs, parameters: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, float, Tensor, Tensor]]:
        """Name and weight of each term, the loss of each pair, and whether it is misclassified: (pairs,) each."""
        sides = (
            ("visual", self.visual, inputs.images, inputs.image_of),
            ("textual", self.textual, inputs.texts, inputs.text_of),
        )
        weighted = [side for side in sides if side[1]]
        # An item that is in several pairs has one class and is classified once.
        classes = [
            inputs.classes.new_empty(len(features)).index_put_((rows,), inputs.classes)
            for _, _, features, rows in weighted
        ]
        # Both sides in one call: the classifier is large, and so gets one gradient instead of two that are added.
        losses, wrong = class_losses(
            *self._compared(torch.cat([features for _, _, features, _ in weighted]), parameters),
            parameters.get(BIAS),
            torch.cat(classes),
            inputs.logit_correction,
            self.classes_at_once,
        )
        start = 0
        for name, weight, features, rows in weighted:
            yield name, weight, losses[start + rows], wrong[start + rows]
            start += len(features)

    def _compared(self, features: Tensor, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The features and the classifier's rows, whose inner products are the logits."""
        rows = parameters[CLASSIFIER]
        if self.temperature is None:
            return features, rows
        learned = self.learn_temperature
        temperature = learned_temperature(parameters, self.temperature) if learned else self.temperature
        return normalize(features, dim=1) / temperature, normalize(rows, dim=1)
