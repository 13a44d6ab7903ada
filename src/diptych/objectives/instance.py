"""Instance loss: every group is a class, and one classifier tells images and texts apart.

    L = rank L_rank + visual L_visual + textual L_textual                                   (Zheng et al. 2020, Eq. 9)
    L_visual = -log softmax(W^T f_img)(c),  L_textual = -log softmax(W^T f_text)(c)         (Eq. 5-8, the same W)
    L_rank = [m - (s(i, t) - s(i, t'))]+ + [m - (s(i, t) - s(i', t))]+                      (Eq. 4, margin 1)

Reference: Dual-Path Convolutional Image-Text Embeddings with Instance Loss, ACM TOMM 2020, section IV.
Needs: features of the batch's images and texts and the class of each pair; for the ranking term scores and positives.
When to use it: alone, to begin with, before the towers agree on anything; then together with the ranking term.
Relation to others: all terms are means over the pairs. The ranking term is that of `hinge`, with one negative as the
paper's Eq. 4 has it (`next`); `negatives = "max"` takes the hardest of the batch, near to the authors' code, which
takes the hardest of 256 texts. W has no bias, as in Eq. 5; `bias = true` adds the one of the code. The classifier
belongs to the training and not to the model. `sampled` compares with so many classes only, `classes_at_once` bounds
the memory and changes nothing else, and `clusters` puts the groups into so many classes, by K-means of their images'
features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn
from typing_extensions import Self

from diptych.objectives.hinge import Hinge, Negatives
from diptych.objectives.objective import Instances, Loss, Objective, ObjectiveContext, ScoredPairs, Summary
from diptych.objectives.softmax import class_losses
from diptych.settings import Count, Flag, Number

Weight = Annotated[Number, Field(ge=0)]

CLASSIFIER, BIAS = "classifier", "classifier_bias"  # names of what is learned


class Instance(Objective):
    """See the module's description."""

    name: Literal["instance"] = "instance"
    rank: Weight = 0.0
    visual: Weight = 1.0
    textual: Weight = 1.0
    margin: Weight = 1.0
    negatives: Negatives = "next"
    bias: Flag = False
    sampled: Annotated[int, Field(ge=2, strict=True)] | None = None
    classes_at_once: Count | None = None
    clusters: Annotated[int, Field(ge=2, strict=True)] | None = None

    @model_validator(mode="after")
    def _has_terms(self) -> Self:
        if not (self.rank or self.needs_classes):
            raise PydanticCustomError("terms", "nothing is left to minimise; set rank, visual or textual above 0")
        return self

    @property
    def needs_classes(self) -> bool:
        """Whether it classifies, and does not only rank."""
        return self.visual > 0 or self.textual > 0

    def __call__(self, batch: ScoredPairs) -> Loss:
        """The terms whose weight is above zero."""
        terms: dict[str, Tensor] = {}
        errors: dict[str, Tensor] = {}
        if self.rank:
            share = self.rank / len(batch.scores)
            terms |= {name: term * share for name, term in self._hinge(batch).terms.items()}
        if self.needs_classes:
            assert batch.instances is not None, "checked before training began"
            for name, weight, (losses, wrong) in self._classified(batch.instances, batch.learned):
                terms[name], errors[name] = weight * losses.mean(), wrong.float().mean()
        return Loss(terms, averaged=True, errors=errors)

    def start_learned(self, given: ObjectiveContext) -> dict[str, Tensor]:
        """The classifier's weights, a row a class, and its bias where it has one."""
        if not self.needs_classes:
            return {}
        learned = {CLASSIFIER: nn.init.xavier_uniform_(torch.empty(given.classes, given.size))}
        return learned | ({BIAS: torch.zeros(given.classes)} if self.bias else {})

    def stuck(self, batch: Summary, total: float) -> bool:
        """Alone, the ranking term sticks where hinges do; a classifier's gradient still tells classes apart."""
        if self.needs_classes:
            return False
        return self._hinge.stuck(batch, total / self.rank * len(batch.positives))

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        return f"{self._hinge.collapse_hint}; or begin with a stage of visual = 1 and textual = 1, as the paper does"

    @property
    def _hinge(self) -> Hinge:
        return Hinge(margin=self.margin, negatives=self.negatives)

    def _classified(
        self, found: Instances, learned: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, float, tuple[Tensor, Tensor]]]:
        """Each term that counts: what a pair's image, or its text, loses, and whether it is taken for another class."""
        sides = (
            ("visual", self.visual, found.images, found.image_of),
            ("textual", self.textual, found.texts, found.text_of),
        )
        counting = [side for side in sides if side[1]]
        classes = []
        for _, _, features, of in counting:  # one that is in several pairs is of one class, and is classified once
            classes.append(found.classes.new_empty(len(features)).index_put_((of,), found.classes))
        # Both sides at once: the classifier is large, and then has one gradient and not two to be added.
        losses, wrong = class_losses(
            torch.cat([features for _, _, features, _ in counting]),
            learned[CLASSIFIER],
            learned.get(BIAS),
            torch.cat(classes),
            found.correction,
            self.classes_at_once,
        )
        start = 0
        for name, weight, features, of in counting:
            yield name, weight, (losses[start + of], wrong[start + of])  # (pairs,) each
            start += len(features)
