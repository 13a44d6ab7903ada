"""What objectives may read of a batch beyond its scores; each type is supplied by a module in `training.needs`.

An objective with a need of its own defines the type beside itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class WithinScores:
    """The scores of a batch's images with each other and of its texts with each other, (pairs, pairs) each."""

    images: Tensor
    texts: Tensor


@dataclass(frozen=True)
class OfflineScores:
    """The scores of each pair's offline negatives, (pairs,) each.

    `text` is the drawn text with the pair's image, `image` the drawn image with the pair's text, `both` the drawn image
    with the drawn text, `derived` an image of the drawn text's group with a text of the drawn image's group. They count
    where `is_drawn`, and the last two only where `is_negative`: elsewhere they would be positives.
    """

    text: Tensor
    image: Tensor
    both: Tensor
    derived: Tensor
    is_drawn: Tensor
    is_negative: Tensor


@dataclass(frozen=True)
class NegativeScores:
    """The scores of negatives that were drawn for each pair alone, (pairs, negatives); minus infinity for none.

    `images` are scored with the pair's text (regions of its photo that show something else), `texts` with its image.
    Texts with such `images` are compared with these and no others.
    """

    images: Tensor | None = None
    texts: Tensor | None = None


@dataclass(frozen=True)
class NegativeOptions:
    """How many of the images that were drawn for a pair count: those with the highest scores, all by default."""

    most: int | None = None


@dataclass(frozen=True)
class PairRoles:
    """How each pair counts, (pairs,) each.

    An image or text that is in several pairs is one negative: `is_first_image` and `is_first_text` mark the first pair
    with it. `image_is_query` and `text_is_query` say whether the pair counts as a query of its image, and of its text.
    """

    is_first_image: Tensor
    is_first_text: Tensor
    image_is_query: Tensor
    text_is_query: Tensor

    @classmethod
    def all_queries(cls, pairs: int, device: torch.device) -> PairRoles:
        """The roles of pairs with distinct images and texts, all of which are queries."""
        return cls(*torch.ones(4, pairs, dtype=torch.bool, device=device))


@dataclass(frozen=True)
class ClassifierInputs:
    """The features of a batch's distinct images and texts, and the class of each pair.

    `images` is (images, size) and `texts` is (texts, size); `image_of` and `text_of`, (pairs,), give the row of each
    pair. `classes`, (pairs,), are rows of the classifier. If the classifier holds a sample of all classes,
    `logit_correction`, (rows,), must be added to its logits: the logarithm of the number of classes that each row
    stands for.
    """

    images: Tensor
    texts: Tensor
    image_of: Tensor
    text_of: Tensor
    classes: Tensor
    logit_correction: Tensor | None = None


@dataclass(frozen=True)
class RampShare:
    """How far a part of the objective has been ramped up in this step: from 0, not at all, to 1, in full."""

    share: float


@dataclass(frozen=True)
class RampOptions:
    """When a ramp begins, and how many steps it takes.

    It begins after `after` steps of the stage or, if that is None, once the smoothed value per pair of the loss term
    `term` is below `below`.
    """

    steps: int
    after: int | None
    term: str
    below: float


@dataclass(frozen=True)
class ClassOptions:
    """How the training groups become classes.

    `clusters` joins them into this many classes, one class per group by default; `sampled` compares with this many
    classes per step, with all by default.
    """

    clusters: int | None = None
    sampled: int | None = None
