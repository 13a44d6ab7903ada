"""The interface that every model follows, and that evaluation, mining and search see nothing beyond.

A matcher has two towers and a score. Encodings are tensors with a row an image or a text; what a row is, only the score
knows. The score is always higher-is-better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.settings import Settings


@dataclass(frozen=True)
class Tokens:
    """Texts as padded word ids (texts, length) and their lengths (texts,)."""

    ids: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class ImageInput:
    """What an image tower reads: `pixels` squares of this side as bytes, or stored `features` of this shape."""

    kind: Literal["pixels", "features"]
    shape: tuple[int, ...]


class ModelSettings(Settings, ABC):
    """The settings of a matcher, as a recipe's `model` table gives them."""

    name: str

    @abstractmethod
    def fitted(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings with what only the data knows: the vocabulary's size and the shape of stored features."""

    @abstractmethod
    def build(self) -> Matcher:
        """A fresh matcher of fitted settings."""


class Matcher(nn.Module, ABC):
    """Two towers and a score between what they make."""

    settings: ModelSettings
    image_input: ImageInput

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Encode a batch of what `image_input` describes; row i belongs to image i."""

    @abstractmethod
    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode a batch of texts; row j belongs to text j, whatever the padding."""

    @abstractmethod
    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score all encoded images against all encoded texts: (images, texts), higher is better."""

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words, rows of the vocabulary, from given vectors; the others keep their random start."""
        raise RecipeError(f"text.vectors: the model {self.settings.name!r} has no word embedding to start")
