"""The interface of every tower: settings that a recipe names, and the network that they build.

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
from typing_extensions import Self

from diptych import registry
from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.standardise import Standardise
from diptych.progress import ProgressCallback
from diptych.settings import NamedSettings, Settings
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.word_vectors import WordVectors

Kind = TypeVar("Kind", bound=Settings)


@dataclass(frozen=True)
class Tokens:
    """Texts as padded ids (texts, length) and their lengths (texts,).

    `features`, (texts, feature size), is what `TextTower.features` has computed before; it is used instead of the ids.
    """

    ids: Tensor
    lengths: Tensor
    features: Tensor | None = None


class ImageTower(nn.Module, ABC):
    """Encodes an image as one vector of `size`, or in a region tower as several, before the joint space.

    `input` describes what it reads. With `reads_maps`, `forward` also takes what the frozen first steps of its backbone
    compute of each crop, (images, crops, map size), as `features.map_reader` reads it.
    """

    reads_maps: ClassVar[bool] = False

    input: ImageInput
    size: int

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Encode a batch of `input`: (images, size), or (images, regions, size) with zeros for missing regions."""

    @property
    def pretrained(self) -> Backbone | None:
        """The backbone whose output can be stored while it is frozen, if any."""
        return None

    @property
    def pretrained_weights(self) -> Path | None:
        """The file that `load_pretrained` loads the backbone's weights from; None for the backbone's own."""
        return None

    @property
    def standardise(self) -> Standardise | None:
        """The last layer, if it standardises the vectors: training measures their statistics before it begins."""
        return None

    def backbone_features(self, images: Tensor) -> Tensor:
        """The backbone's output for a batch of `input`, as it is stored; a tower without backbone returns the batch.

        `forward` gives the same for it as for the batch.
        """
        return images

    def load_pretrained(self) -> None:
        """Load the weights that training starts from; does nothing in a tower that starts at random."""
        return


class ImageTowerSettings(NamedSettings, ABC):
    """The settings of an image tower, as `model.image` gives them."""

    def for_data(self, feature_shape: tuple[int, ...] | None) -> ImageTowerSettings:
        """These settings for a corpus with stored features of this shape, or None for one with pictures only."""
        return self

    @abstractmethod
    def build(self) -> ImageTower:
        """A tower with random weights."""


class TextTower(nn.Module, ABC):
    """Encodes a text as one vector of `size`, before the joint space.

    With `caches_features`, what the tower computes of a text first does not change while `feature_part` is frozen.
    Training then computes it once per distinct text, stores it, and passes it as `Tokens.features`, which `forward`
    must use instead of the ids. By default it is the output of the whole tower.
    """

    caches_features: ClassVar[bool] = False
    features_at_once: ClassVar[int] = 4096  # texts whose features are computed in one batch

    size: int

    @abstractmethod
    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, size)."""

    @property
    def feature_part(self) -> nn.Module:
        """The part that `features` runs."""
        return self

    @property
    def feature_size(self) -> int:
        """The size of the features."""
        return self.size

    @property
    def feature_options(self) -> dict[str, Any]:
        """What the features depend on besides the weights of `feature_part` and the ids, as JSON could hold it."""
        return {}

    def features(self, tokens: Tokens) -> Tensor:
        """What may be stored of padded texts: (texts, feature size)."""
        features: Tensor = self(tokens)
        return features

    @property
    def standardises(self) -> bool:
        """Whether the mean and the deviation of the features are to be set before training (`standardise`)."""
        return False

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the mean and the standard deviation of each entry of the features over the training texts."""
        raise NotImplementedError(f"{type(self).__name__} does not standardise its features")

    def load_pretrained(self) -> None:
        """Load the weights that training starts from; does nothing in a tower that starts at random."""
        return

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words, rows of the vocabulary, with these vectors; the others stay random."""
        raise RecipeError("text.vectors: the text tower has no word embedding to initialise")


class FittedTextTower(TextTower):
    """A text tower that is fitted to the training texts once, before training, and has nothing to train.

    Its output for a text never changes. Everything that was fitted is in the tower's buffers, and so in the run.
    """

    settings: TextTowerSettings

    @abstractmethod
    def fit(self, texts: TokenTable, vectors: WordVectors | None, progress: ProgressCallback | None = None) -> None:
        """Fit the tower to the training texts; `vectors` are the vectors of the vocabulary's words, if any."""

    @abstractmethod
    def known(self, tokens: Tokens) -> Tensor:
        """Which texts have a word that the tower knows: (texts,). All others look the same to it."""


class TextTowerSettings(NamedSettings, ABC):
    """The settings of a text tower, as `model.text` gives them."""

    def completed(self) -> Self:
        """These settings with all that is read from the files that they name, so that a run needs those no longer."""
        return self

    def tokeniser(self) -> Tokeniser | None:
        """The tokeniser that belongs to the tower's pretrained weights; None if the recipe's `text` table decides."""
        return None

    @abstractmethod
    def build(self, words: int) -> TextTower:
        """A tower with random weights for a tokeniser of this many words or other ids."""


def is_tower(module: nn.Module) -> bool:
    """Whether a part of a matcher is an image tower or a text tower."""
    return isinstance(module, ImageTower | TextTower)


@torch.no_grad()
def load_word_embedding(embedding: nn.Embedding, vectors: Tensor, found: Tensor) -> None:
    """Copy the vectors of the found words into a word embedding of the same size."""
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
