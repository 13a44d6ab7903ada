"""Ranking in both directions, and within each modality, by the largest violations of an anchor: two-branch's loss.

With d = -score, m the margin, and [t]+ = max(0, t), each sum over the pairs or neighbours of the batch:

    image_to_text:   l1 [m + d(x_i, y_j) - d(x_i, y_k)]+        y_j is x_i's, y_k of another group        (Eq. 1)
    text_to_image:   l2 [m + d(x_j, y_i) - d(x_k, y_i)]+        x_j is y_i's, x_k of another group        (Eq. 2)
    image_to_image:  l3 [m + d(x_i, x_j) - d(x_i, x_k)]+        x_j is a neighbour of x_i, x_k is not     (Eq. 4)
    text_to_text:    l4 [m + d(y_i, y_j) - d(y_i, y_k)]+        y_j is a neighbour of y_i, y_k is not     (Eq. 5)

and their sum is Eq. 6. Of the triplets of one (anchor, positive), at most `most` count, those that violate most.

Who is what: in the first two, a pair of the batch that asks (`asking`) is (anchor, positive), as often as it was
drawn. Its negatives are the batch's texts, or images, of other groups, each once (`first`); where rivals were drawn for
the pairs, such as other regions of the same photo, they are its negatives and nothing else is. In the last two, an
anchor is a distinct image or text, and its neighbours are the others of its group that are in the batch. (The paper's
N(x) also has regions of other photos that are described by the same words; its Algorithm 1 draws none of those.)

Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, sections 3.2,
4.1 (Algorithm 1) and 5.1.
Needs: scores of the batch and the positives mask; with l3 or l4, scores within each side, and batches that have
neighbours (`batches.neighbours`).
When to use it: with `two_branch`. l2 = 1 and no other is the paper's single-directional loss.
Relation to others: `hinge` with `sum` counts every violation, with `max` the largest. The paper writes a sum; here each
term is divided by the number of pairs of the batch, asking or not, so that the rate of the optimiser does not depend
on the batch's size and the weights mean what they do in Eq. 6. The terms have their weights in them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor
from torch.nn.functional import relu

from diptych.objectives.objective import Loss, Objective, RivalScores, ScoredPairs, Summary
from diptych.settings import Count, Number

Weight = Annotated[Number, Field(ge=0)]
TERMS = ("image_to_text", "text_to_image", "image_to_image", "text_to_text")


class Neighbourhood(Objective):
    """The largest violations of four kinds, each with its weight; see the module's description.

    A kind whose weight is 0 is left out.
    """

    name: Literal["neighbourhood"] = "neighbourhood"
    margin: Annotated[Number, Field(ge=0)] = 0.1
    most: Count = 50
    image_to_text: Weight = 1.0
    text_to_image: Weight = 2.0
    image_to_image: Weight = 0.0
    text_to_text: Annotated[Weight, Field(validate_default=True)] = 0.0

    @field_validator("text_to_text")
    @classmethod
    def _some_weight(cls, last: float, info: ValidationInfo) -> float:
        """Refuse a loss of nothing; the last of the four is checked when the others are known."""
        if not last and not any(info.data.get(name, 1) for name in TERMS[:3]):
            raise PydanticCustomError("weights", "all four weights are 0; raise one, such as text_to_image")
        return last

    @property
    def needs_within(self) -> bool:
        """Whether images are compared with images, or texts with texts."""
        return self.image_to_image > 0 or self.text_to_text > 0

    def __call__(self, batch: ScoredPairs) -> Loss:
        """The terms whose weight is not 0."""
        scores, others = batch.scores, ~batch.positives
        everyone = scores.new_ones(len(scores), dtype=torch.bool)
        images, texts = batch.first or (everyone, everyone)
        images_ask, texts_ask = batch.asking or (everyone, everyone)
        rivals = batch.rivals or RivalScores()
        own = scores.diagonal()
        sums = {}
        if self.image_to_text:
            near = self._nearest(scores, others & texts, rivals.texts)
            sums["image_to_text"] = self._violations(own[images_ask], near[images_ask])
        if self.text_to_image:
            near = self._nearest(scores.t(), others.t() & images, rivals.images)
            sums["text_to_image"] = self._violations(own[texts_ask], near[texts_ask])
        if self.needs_within:
            assert batch.within is not None, "asked for by needs_within"
            for name, among, first in zip(TERMS[2:], batch.within, (images, texts), strict=True):
                if getattr(self, name):
                    sums[name] = self._neighbours(among, batch.positives, first)
        return Loss({name: getattr(self, name) / len(scores) * lost for name, lost in sums.items()}, averaged=True)

    def _neighbours(self, scores: Tensor, same: Tensor, first: Tensor) -> Tensor:
        """The violations of each distinct item with each of its neighbours; those of one item are near it together."""
        near = self._nearest(scores, ~same & first)  # (pairs, most)
        neighbours = (same & first & first[:, None]).fill_diagonal_(False)
        anchors, positives = neighbours.nonzero(as_tuple=True)
        return self._violations(scores[anchors, positives], near[anchors])

    def _nearest(self, scores: Tensor, negatives: Tensor, rivals: Tensor | None = None) -> Tensor:
        """The highest scores of each row's negatives, (pairs, most): no other hinge of the row is larger."""
        counted = scores.masked_fill(~negatives, -torch.inf) if rivals is None else rivals
        return counted.topk(min(self.most, counted.shape[1]), sorted=False).values

    def _violations(self, own: Tensor, near: Tensor) -> Tensor:
        """The sum of the hinges of some positives, (n,), against their nearest negatives, (n, most)."""
        return relu(self.margin - own[:, None] + near).sum()

    def stuck(self, batch: Summary, total: float) -> bool:
        """Stuck where all distances are equal: every hinge is the margin, however many were counted."""
        return total > 0 and batch.highest - batch.lowest < 0.1 * self.margin

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        return (
            "all distances are equal and every negative violates the margin; raise objective.most, so that more than "
            "the hardest push, lower optimiser.rate, or set model.batch_norm = true"
        )
