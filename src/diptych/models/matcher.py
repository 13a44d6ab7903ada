"""The interface that every model follows, and that evaluation, mining and search see nothing beyond.

A matcher has two towers and a score. Encodings are tensors with a row an image or a text; what a row is, only the score
knows: a vector, or a set of vectors, (places, size), whose empty places are zeros. The score is always
higher-is-better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from typing_extensions import Self

from diptych.features.backbone import Backbone
from diptych.features.readers import ImageInput
from diptych.models.tower import Tokens
from diptych.settings import Settings

PAIRS_AT_ONCE = 16  # what pairs are scored with is a small matrix, of which the diagonal is kept


class ModelSettings(Settings, ABC):
    """The settings of a matcher, as a recipe's `model` table gives them."""

    name: str

    @abstractmethod
    def fitted(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings with what only the data knows: the vocabulary's size and the shape of stored features."""

    @abstractmethod
    def build(self) -> Matcher:
        """A fresh matcher of fitted settings, its weights at random."""


@dataclass(frozen=True)
class EncodedBatch:
    """The encodings of a batch to train on, and the model's own terms of the loss, where it has some.

    `features` are what a classifier reads of the images and of the texts, where that is not their encodings.
    """

    images: Tensor
    texts: Tensor
    terms: dict[str, Tensor] = field(default_factory=dict)
    features: tuple[Tensor, Tensor] | None = None


class Matcher(nn.Module, ABC):
    """Two towers and a score between what they make."""

    settings: ModelSettings

    @property
    @abstractmethod
    def image_input(self) -> ImageInput:
        """What `encode_images` reads."""

    @property
    def joint(self) -> int | None:
        """The size of the joint space, where an image and a text are one vector each in it; else none."""
        return None

    @property
    def is_inner_product(self) -> bool:
        """Whether images and texts are a vector each and the score grows with their inner product, as most do."""
        return True

    @property
    def reads_views(self) -> bool:
        """Whether it makes one vector of an image tower's several views; most read one vector an image, or regions."""
        return False

    @property
    def own_terms(self) -> tuple[str, ...]:
        """The names of the model's own terms of the loss, which `encode_batch` gives; most have none."""
        return ()

    @property
    def pretrained(self) -> Backbone | None:
        """The backbone whose output `encode_images` reads as well, where there is one."""
        return None

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Encode a batch of what `image_input` describes, or of the backbone's vectors; row i belongs to image i."""

    @abstractmethod
    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode a batch of texts; row j belongs to text j, whatever the padding."""

    @abstractmethod
    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score all encoded images against all encoded texts: (images, texts), higher is better."""

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score encoded image k against encoded text k: (pairs,)."""
        blocks = zip(torch.split(images, PAIRS_AT_ONCE), torch.split(texts, PAIRS_AT_ONCE), strict=True)
        return torch.cat([self.score(*block).diagonal() for block in blocks])

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a batch to train on: text k belongs to image `image_of[k]`; texts beyond those are negatives."""
        return EncodedBatch(self.encode_images(images), self.encode_texts(tokens))

    @abstractmethod
    def start_images(self) -> None:
        """Load the pretrained weights that training begins with, where the image side has some."""

    @abstractmethod
    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words, rows of the vocabulary, from given vectors; the others keep their random start."""
