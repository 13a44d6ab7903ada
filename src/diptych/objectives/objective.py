"""What an objective takes and returns.

An objective is a pure function of tensors: a scored batch goes in, named terms and their sum come out. Drawing the
batch is not its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from diptych.settings import Settings


@dataclass(frozen=True)
class ScoredPairs:
    """A scored batch of pairs: row k and column k are the image and the text of the k-th drawn pair.

    `scores` is (pairs, pairs), images by texts; `positives` marks the entries whose image and text share a group, the
    diagonal among them. `within`, for objectives that need it, scores the images among themselves and the texts among
    themselves, (pairs, pairs) each, `offline` each pair with its offline negatives, `rivals` each pair with the rivals
    drawn for it. `first` marks the pairs that are the first with their image, and the first with their text, (pairs,)
    each: an image or a text that is in several pairs is still one negative. `asking` marks the pairs whose image looks
    for its text, and whose text looks for its image; all do unless told. `instances` is what a classifier reads of the
    batch, for objectives that have one. `learned` are the numbers that the objective itself has to learn.
    """

    scores: Tensor
    positives: Tensor
    within: tuple[Tensor, Tensor] | None = None
    offline: OfflineScores | None = None
    rivals: RivalScores | None = None
    first: tuple[Tensor, Tensor] | None = None
    asking: tuple[Tensor, Tensor] | None = None
    instances: Instances | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict)

    def summary(self) -> Summary:
        """What is worth keeping when the scores are gone."""
        scores = self.scores.detach()
        lowest = float(scores.min())
        if lowest == -torch.inf:  # a rival that lacks
            lowest = float(scores[scores.isfinite()].min())
        return Summary(lowest, float(scores.max()), self.positives.sum(1))


@dataclass(frozen=True)
class OfflineScores:
    """The scores of each pair's offline negatives, (pairs,) each.

    `text` is the drawn text with the pair's image, `image` the drawn image with the pair's text, `both` the drawn image
    with the drawn text, `derived` an image of the drawn text's group with a text of the drawn image's group. Only what
    is `drawn` counts, and the last two only where the draws are `apart`, else they would be positives.
    """

    text: Tensor
    image: Tensor
    both: Tensor
    derived: Tensor
    drawn: Tensor
    apart: Tensor


@dataclass(frozen=True)
class RivalScores:
    """The scores of negatives that were drawn for each pair alone, (pairs, rivals); minus infinity where one lacks.

    `images` scores a pair's text with images (regions of its photo that are something else), `texts` its image with
    texts. Where there are `images`, the texts of a batch look for theirs among these and no others.
    """

    images: Tensor | None = None
    texts: Tensor | None = None


@dataclass(frozen=True)
class Instances:
    """What a classifier of groups reads of a batch: the features of its images and texts, and the class of each pair.

    `images` is (images, size) and `texts` is (texts, size), each once; `image_of` and `text_of`, (pairs,), say which of
    them a pair has. `classes`, (pairs,), are rows of the classifier. Where the classifier is a sample of all classes,
    `correction`, (rows,), is to be added to its outputs: the logarithm of how many classes each row stands for.
    """

    images: Tensor
    texts: Tensor
    image_of: Tensor
    text_of: Tensor
    classes: Tensor
    correction: Tensor | None = None


@dataclass(frozen=True)
class ObjectiveContext:
    """What an objective is told before it begins to learn: the size of features, and how many classes there are."""

    size: int = 0
    classes: int = 0


@dataclass(frozen=True)
class Queries:
    """Images or texts of a batch that look for their own among all the batch has of the other side.

    `scores` is (queries, pairs), `own` the column of each query's own pair, `positives` as in `ScoredPairs`; `within`
    scores the queries against all the batch has of their own side.
    """

    scores: Tensor
    own: Tensor
    positives: Tensor
    within: Tensor | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """What is known of a batch whose scores are gone: their bounds, and how many positives each pair's image has."""

    lowest: float
    highest: float
    positives: Tensor  # (pairs,)


@dataclass(frozen=True)
class Loss:
    """Named terms; what training minimises is their sum. `averaged` says that they are means over the pairs.

    `own` are terms of the model itself, always means over the pairs, which training adds. `errors` are shares of the
    pairs that a classifier got wrong: they are told, not minimised.
    """

    terms: dict[str, Tensor]
    averaged: bool = False
    own: dict[str, Tensor] = field(default_factory=dict)
    errors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def total(self) -> Tensor:
        """The sum of the terms."""
        first, *rest = (*self.terms.values(), *self.own.values())
        return sum(rest, first)


class Objective(Settings, ABC):
    """Maps a scored batch to a loss; its fields are what a recipe's `objective` table may set."""

    name: str
    needs_offline: ClassVar[bool] = False  # whether it reads `offline`
    pairs_only: ClassVar[bool] = False  # `scores` is (pairs, 1 + rivals): a pair's own score, then those of its rivals

    @property
    def needs_within(self) -> bool:
        """Whether it reads `within`."""
        return False

    @property
    def needs_classes(self) -> bool:
        """Whether it reads `instances`."""
        return False

    @abstractmethod
    def __call__(self, batch: ScoredPairs) -> Loss:
        """Compute the loss of a batch."""

    @abstractmethod
    def stuck(self, batch: Summary, total: float) -> bool:
        """Whether this batch and its loss lie in a trap of this objective, such as all encodings being equal."""

    @property
    def collapse_hint(self) -> str:
        """What being stuck looks like, and what to do."""
        return "lower optimiser.rate"

    def start_learned(self, given: ObjectiveContext) -> dict[str, Tensor]:
        """What the objective itself learns, by name, as it begins; most learn nothing."""
        return {}


class Ranking(Objective):
    """An objective that asks each query by itself, the same way in both directions.

    So it can be computed for some queries at a time, without all scores of a batch at once.
    """

    averaged: ClassVar[bool] = False  # whether the loss is the mean over the pairs, and not the sum

    @abstractmethod
    def lost(self, queries: Queries) -> Tensor:
        """What each query loses: (queries,)."""

    def __call__(self, batch: ScoredPairs) -> Loss:
        """Both directions as terms: images that look for their texts, texts that look for their images."""
        own = torch.arange(len(batch.scores), device=batch.scores.device)
        among_images, among_texts = batch.within or (None, None)
        texts = self.lost(Queries(batch.scores, own, batch.positives, among_images, batch.learned))
        images = self.lost(Queries(batch.scores.t(), own, batch.positives.t(), among_texts, batch.learned))
        share = 1 / len(own) if self.averaged else 1
        return Loss({"image_to_text": texts.sum() * share, "text_to_image": images.sum() * share}, self.averaged)
