"""What every tower is: settings that a recipe names, and the network that they build.

A tower's name in a recipe is a file in `models/towers/image/`, `models/towers/region/` or `models/towers/text/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn

from diptych import registry
from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.progress import ProgressCallback
from diptych.settings import Settings
from diptych.text.vocabulary import TokenTable
from diptych.text.word_vectors import WordVectors

Kind = TypeVar("Kind", bound=Settings)


@dataclass(frozen=True)
class Tokens:
    """Texts as padded word ids (texts, length) and their lengths (texts,).

    `features` is what a fitted tower has made of them before, (texts, size): it is used as it is, not computed again.
    """

    ids: Tensor
    lengths: Tensor
    features: Tensor | None = None


class ImageTower(nn.Module, ABC):
    """One image to one vector before the joint space, or a region tower's several, each `size` long.

    `input` says what it reads.
    """

    input: ImageInput
    size: int

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """A batch of what `input` describes to (images, size), or (images, regions, size) with zeros for no region."""

    @property
    def pretrained(self) -> Backbone | None:
        """The backbone whose output can be stored while it is frozen, where the tower has one."""
        return None

    @property
    def pretrained_weights(self) -> Path | None:
        """The file that `start` loads the backbone's weights from; None for the backbone's own."""
        return None

    def start(self) -> None:
        """Load what a fresh tower begins with; a tower that begins at random has nothing to load."""
        return


class ImageTowerSettings(Settings, ABC):
    """The settings of an image tower, as `model.image` gives them."""

    name: str

    def for_data(self, features: tuple[int, ...] | None) -> ImageTowerSettings:
        """These settings for a corpus with stored features of this shape, or with pictures only."""
        return self

    @abstractmethod
    def build(self) -> ImageTower:
        """A fresh tower, its weights at random."""


class TextTower(nn.Module, ABC):
    """One text to one vector before the joint space, `size` long."""

    size: int

    @abstractmethod
    def forward(self, tokens: Tokens) -> Tensor:
        """Padded words to (texts, size)."""

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words, rows of the vocabulary, from given vectors; the others keep their random start."""
        raise RecipeError("text.vectors: the text tower has no word embedding to start")


class FittedTextTower(TextTower):
    """A text tower that is fitted to the training texts once, before training, and has nothing to train.

    What it makes of a text never changes: where that is worth keeping (`kept`), training computes it once for each text
    and gives it as `Tokens.features`. All that was fitted lies in its buffers, so that a run carries it.
    """

    kept: ClassVar[bool] = False
    settings: TextTowerSettings

    @abstractmethod
    def fit(self, texts: TokenTable, vectors: WordVectors | None, progress: ProgressCallback | None = None) -> None:
        """Fit to the training texts, with the vectors of the vocabulary's words where there are such."""

    @abstractmethod
    def known(self, tokens: Tokens) -> Tensor:
        """Which texts have a word that the tower knows, (texts,): the others are nothing to it."""


class TextTowerSettings(Settings, ABC):
    """The settings of a text tower, as `model.text` gives them."""

    name: str

    @abstractmethod
    def build(self, words: int) -> TextTower:
        """A fresh tower for a vocabulary of this many words."""


@torch.no_grad()
def start_embedding(embedding: nn.Embedding, vectors: Tensor, found: Tensor) -> None:
    """Put the vectors of the found words into a word embedding of the same size."""
    if vectors.shape[1] != embedding.embedding_dim:
        size = vectors.shape[1]
        raise RecipeError(f"text.vectors: vectors of size {size}, set model.text.word = {size}")
    embedding.weight[found] = vectors[found].to(embedding.weight)


def _named(towers: str, side: str, kind: type[Kind]) -> Any:
    """Turn a recipe's table into the settings of the tower that it names."""

    def resolve(value: Any) -> Any:
        return (
            value
            if isinstance(value, kind)
            else registry.resolve(f"models.towers.{towers}", value, f"model.{side}", kind)
        )

    return BeforeValidator(resolve)


NamedImageTower = Annotated[SerializeAsAny[ImageTowerSettings], _named("image", "image", ImageTowerSettings)]
NamedRegionTower = Annotated[SerializeAsAny[ImageTowerSettings], _named("region", "image", ImageTowerSettings)]
NamedTextTower = Annotated[SerializeAsAny[TextTowerSettings], _named("text", "text", TextTowerSettings)]
