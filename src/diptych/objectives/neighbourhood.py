"""The two-branch loss: rank in both directions and within each modality, counting the largest violations."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor
from torch.nn.functional import relu

from diptych.objectives.extras import NegativeOptions, NegativeScores, PairRoles, WithinScores
from diptych.objectives.objective import Loss, Objective, ScoredPairs, ScoreSummary
from diptych.settings import Count, Number

Weight = Annotated[Number, Field(ge=0)]
TERMS = ("image_to_text", "text_to_image", "image_to_image", "text_to_text")


class Neighbourhood(Objective):
    """The two-branch loss: rank in both directions and within each modality, counting the largest violations.

    With d = -score, m the margin, and [t]+ = max(0, t), each sum over the pairs or neighbours of the batch:

        image_to_text:   l1 [m + d(x_i, y_j) - d(x_i, y_k)]+        y_j is x_i's, y_k of another group        (Eq. 1)
        text_to_image:   l2 [m + d(x_j, y_i) - d(x_k, y_i)]+        x_j is y_i's, x_k of another group        (Eq. 2)
        image_to_image:  l3 [m + d(x_i, x_j) - d(x_i, x_k)]+        x_j is a neighbour of x_i, x_k is not     (Eq. 4)
        text_to_text:    l4 [m + d(y_i, y_j) - d(y_i, y_k)]+        y_j is a neighbour of y_i, y_k is not     (Eq. 5)

    and their sum is Eq. 6. Of the triplets of one (anchor, positive), only the `most` largest violations count.

    In the first two, each pair of the batch that is a query (`PairRoles`) is an (anchor, positive), as often as it was
    drawn. Its negatives are the distinct texts, or images, of other groups in the batch; if negatives were drawn for
    each pair, such as other regions of the same photo, those and no others. In the last two, an anchor is a distinct
    image or text, and its neighbours are the others of its group in the batch. (The paper's N(x) also contains regions
    of other photos that are described by the same words; its Algorithm 1 draws none of those.)

    Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, sections 3.2,
    4.1 (Algorithm 1) and 5.1.

    Needs: the scores of the batch and the positives mask; with l3 or l4, the scores within each side, and batches that
    contain neighbours (`batches.neighbours`).

    When to use it: with `two_branch`. l2 = 1 and all others 0 is the paper's single-directional loss.

    Relation to others: `hinge` with `sum` counts every violation, with `max` the largest. The paper writes a sum; here
    each term is divided by the number of pairs in the batch, queries or not, so that the learning rate does not depend
    on the batch size and the weights mean what they do in Eq. 6. The terms include their weights.

    - `margin`: m.
    - `most`: how many of the largest violations count for each (anchor, positive).
    - `image_to_text`, `text_to_image`, `image_to_image`, `text_to_text`: the weights l1 to l4; a term with weight 0 is
      not computed.
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
        """Refuse a loss without terms; checked on the last of the four, when the others are known."""
        if not last and not any(info.data.get(name, 1) for name in TERMS[:3]):
            raise PydanticCustomError("weights", "all four weights are 0; raise one, such as text_to_image")
        return last

    @property
    def needs(self) -> tuple[str, ...]:
        """Scores within a modality only if a weight asks for them; drawn negatives are used if the stage draws any."""
        within = ("within",) if self.image_to_image > 0 or self.text_to_text > 0 else ()
        return (*within, "negatives", "roles")

    def need_options(self, need: str) -> NegativeOptions | None:
        """Of drawn negatives, only the hardest are needed."""
        return NegativeOptions(self.most) if need == "negatives" else None

    def loss(self, batch: ScoredPairs) -> Loss:
        """The terms whose weight is not 0."""
        scores, others = batch.scores, ~batch.positives
        roles = batch.extras.get(PairRoles) or PairRoles.all_queries(len(scores), scores.device)
        drawn = batch.extras.get(NegativeScores) or NegativeScores()
        positive = scores.diagonal()
        sums = {}
        if self.image_to_text:
            hardest = self._hardest(scores, others & roles.is_first_text, drawn.texts)
            sums["image_to_text"] = self._violations(positive[roles.image_is_query], hardest[roles.image_is_query])
        if self.text_to_image:
            hardest = self._hardest(scores.t(), others.t() & roles.is_first_image, drawn.images)
            sums["text_to_image"] = self._violations(positive[roles.text_is_query], hardest[roles.text_is_query])
        if self.image_to_image:
            within = batch.extras[WithinScores].images
            sums["image_to_image"] = self._neighbours(within, batch.positives, roles.is_first_image)
        if self.text_to_text:
            within = batch.extras[WithinScores].texts
            sums["text_to_text"] = self._neighbours(within, batch.positives, roles.is_first_text)
        return Loss({name: getattr(self, name) / len(scores) * total for name, total in sums.items()}, is_mean=True)

    def _neighbours(self, scores: Tensor, same_group: Tensor, is_first: Tensor) -> Tensor:
        """The violations of each distinct item with each of its neighbours."""
        hardest = self._hardest(scores, ~same_group & is_first)  # (pairs, most)
        is_neighbour = (same_group & is_first & is_first[:, None]).fill_diagonal_(False)
        anchors, positives = is_neighbour.nonzero(as_tuple=True)
        return self._violations(scores[anchors, positives], hardest[anchors])

    def _hardest(self, scores: Tensor, is_negative: Tensor, drawn: Tensor | None = None) -> Tensor:
        """The highest scores of each row's negatives, (pairs, most): no other hinge of the row is larger."""
        negatives = scores.masked_fill(~is_negative, -torch.inf) if drawn is None else drawn
        return negatives.topk(min(self.most, negatives.shape[1]), sorted=False).values

    def _violations(self, positive: Tensor, hardest: Tensor) -> Tensor:
        """The sum of the hinges of some positives, (n,), against their hardest negatives, (n, most)."""
        return relu(self.margin - positive[:, None] + hardest).sum()

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Whether all distances are equal, so that every hinge is the margin."""
        return total > 0 and batch.highest - batch.lowest < 0.1 * self.margin

    @property
    def collapse_hint(self) -> str:
        """What a collapse looks like, and what to do about it."""
        return (
            "all distances are nearly equal and every negative violates the margin; raise objective.most, so that more "
            "than the hardest negatives count, lower optimiser.rate, or set model.batch_norm = true"
        )
