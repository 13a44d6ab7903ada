"""The interface of every model, and all that evaluation, mining, training and search know of one.

A matcher has two towers and a score. Encodings are tensors with one row per image or text. Only the score knows what a
row is: a vector, or a set of vectors, (places, size), whose empty places are zeros. The score is always
higher-is-better.

What a model can do beyond that, it declares as a property (`is_inner_product`, `localises`, ...), so that nobody needs
to ask for its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.attention import Direction
from diptych.models.layers.standardise import Standardised
from diptych.models.tower import FittedTextTower, ImageTower, TextTower, TextTowerSettings, Tokens
from diptych.settings import NamedSettings
from diptych.text.tokenisers.tokeniser import Tokeniser

PAIRS_AT_ONCE = 16  # pairs are scored as small matrices, of which only the diagonal is used

TextShifts = Literal["one", "mean"]


class ModelSettings(NamedSettings, ABC):
    """The settings of a matcher, as a recipe's `model` table gives them."""

    @abstractmethod
    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings completed by the data: the number of ids, and the shape of stored features, if any."""

    def tokeniser(self) -> Tokeniser | None:
        """The tokeniser that belongs to pretrained weights of a part; None if the recipe's `text` table decides."""
        parts = (part for part in vars(self).values() if isinstance(part, ModelSettings | TextTowerSettings))
        return next((found for part in parts if (found := part.tokeniser()) is not None), None)

    @abstractmethod
    def build(self) -> Matcher:
        """A matcher with random weights; the settings must be complete."""


@dataclass(frozen=True)
class EncodedBatch:
    """The encodings of a training batch, and the terms that the model itself adds to the loss, if any.

    `features` are what a classifier reads of the images and of the texts, if that is not their encodings.
    `unnormalised` are the encodings before they are normalised, of a model that adds terms and offers them.
    """

    images: Tensor
    texts: Tensor
    terms: dict[str, Tensor] = field(default_factory=dict)
    features: tuple[Tensor, Tensor] | None = None
    unnormalised: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Solution:
    """Weights that were computed in closed form, by their names in the matcher's state.

    `value` is that of the `setting` that they were computed with: if the settings allow several values, training
    chooses one of them on val.
    """

    setting: str
    value: float
    weights: Mapping[str, Tensor]


class Matcher(nn.Module, ABC):
    """Two towers, and a score between their encodings."""

    settings: ModelSettings

    @property
    @abstractmethod
    def image_input(self) -> ImageInput:
        """What `encode_images` reads."""

    @property
    def pretrained(self) -> Backbone | None:
        """The backbone whose output `encode_images` reads as well, if any."""
        return None

    @property
    def pretrained_weights(self) -> Path | None:
        """The file that `load_pretrained` loads the backbone's weights from; None for the backbone's own."""
        towers = (part for part in self.modules() if isinstance(part, ImageTower))
        return next((tower.pretrained_weights for tower in towers), None)

    @property
    def standardised_images(self) -> Standardised | None:
        """The layer that standardises vectors of images by statistics that training measures, if any.

        Before they are measured it changes nothing, so the vectors are those that a tower ends in.
        """
        towers = (part for part in self.modules() if isinstance(part, ImageTower))
        found = ((tower, tower.standardise) for tower in towers)
        return next((Standardised(layer, tower) for tower, layer in found if layer is not None), None)

    @property
    def standardised_texts(self) -> Standardised | None:
        """The same for vectors of texts, besides a text tower that standardises its features."""
        return None

    @property
    def reads_maps(self) -> bool:
        """Whether `encode_images` also takes the maps of the backbone's frozen first steps."""
        return any(part.reads_maps for part in self.modules() if isinstance(part, ImageTower))

    @property
    def fitted_text_tower(self) -> FittedTextTower | None:
        """The text tower that is fitted to the training texts before training, if the model has one."""
        return next((part for part in self.modules() if isinstance(part, FittedTextTower)), None)

    @property
    def cached_text_tower(self) -> TextTower | None:
        """The text tower whose features training may compute once per text and pass as `Tokens.features`, if any."""
        towers = [part for part in self.modules() if isinstance(part, TextTower) and part.caches_features]
        return towers[0] if len(towers) == 1 else None

    @property
    def shares_prefixes(self) -> bool:
        """Whether `encode_texts` computes a prefix that several texts of a batch share only once."""
        return any(getattr(part, "shares_prefixes", False) for part in self.modules() if not isinstance(part, Matcher))

    # Capabilities

    @property
    def embedding_dim(self) -> int | None:
        """The size of the embeddings if an image and a text are one vector each, else None."""
        return None

    @property
    def is_inner_product(self) -> bool:
        """Whether images and texts are one vector each and the score grows with their inner product."""
        return True

    @property
    def compares_within_modality(self) -> bool:
        """Whether `score` can also compare images with images and texts with texts."""
        return self.embedding_dim is not None

    @property
    def offers_unnormalised(self) -> bool:
        """Whether embeddings can be had before they are normalised (`unnormalised_images`, `unnormalised_texts`)."""
        return False

    @property
    def reads_views(self) -> bool:
        """Whether the model turns several views of an image into one vector."""
        return False

    @property
    def localises(self) -> bool:
        """Whether the model scores each proposed region of an image by itself, and so can find a phrase in it."""
        return False

    @property
    def base_model(self) -> Matcher | None:
        """The embedding model whose encodings are all that this one reads of an image or a text, if there is one.

        While it is frozen, training may compute them once (`encode_base_images`, `encode_base_texts`).
        """
        return None

    @property
    def shifts_texts(self) -> bool:
        """Whether texts can be encoded at every position that they can take (`set_text_shifts`)."""
        return False

    @property
    def attention_direction(self) -> Direction | None:
        """Who attends in `attention`: words to regions ("t2i") or regions to words ("i2t"); None without attention."""
        return None

    @property
    def extra_terms(self) -> tuple[str, ...]:
        """The names of the loss terms that the model itself adds in `encode_batch`."""
        return ()

    @property
    def solves_in_closed_form(self) -> bool:
        """Whether the weights are computed from all pairs (`accumulate`, `solutions`), without gradients."""
        return False

    @property
    def needs_training(self) -> bool:
        """Whether the weights that `load_pretrained` loads have to be trained before the model is of use."""
        return True

    # Encoding and scoring

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Encode a batch of what `image_input` describes, or of the backbone's vectors; row i belongs to image i."""

    @abstractmethod
    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode a batch of texts; row j belongs to text j and does not depend on the padding."""

    @abstractmethod
    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score all encoded images against all encoded texts: (images, texts), higher is better."""

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score encoded image k against encoded text k: (pairs,)."""
        blocks = zip(torch.split(images, PAIRS_AT_ONCE), torch.split(texts, PAIRS_AT_ONCE), strict=True)
        return torch.cat([self.score(*block).diagonal() for block in blocks])

    def unnormalised_images(self, images: Tensor) -> Tensor:
        """Encode images up to the normalisation that ends `encode_images`."""
        raise NotImplementedError(f"{self.settings.name!r} has no embeddings before their normalisation")

    def unnormalised_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts up to the normalisation that ends `encode_texts`."""
        raise NotImplementedError(f"{self.settings.name!r} has no embeddings before their normalisation")

    def encode_base_images(self, vectors: Tensor) -> Tensor:
        """Encode images from what `base_model` encodes them as."""
        raise NotImplementedError(f"{self.settings.name!r} has no base model")

    def encode_base_texts(self, vectors: Tensor) -> Tensor:
        """Encode texts from what `base_model` encodes them as."""
        raise NotImplementedError(f"{self.settings.name!r} has no base model")

    def attention(self, image: Tensor, text: Tensor) -> Tensor:
        """The attention weights between one encoded image and one encoded text: (words, regions)."""
        raise NotImplementedError(f"{self.settings.name!r} has no attention")

    def set_text_shifts(self, shifts: TextShifts) -> None:
        """Encode each text once from now on, or as the mean over all positions that it can take."""
        raise NotImplementedError(f"{self.settings.name!r} does not shift texts")

    # Training

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a training batch: text k belongs to image `image_of[k]`; further texts are negatives."""
        return EncodedBatch(self.encode_images(images), self.encode_texts(tokens))

    def accumulate(self, images: Tensor, tokens: Tokens, image_of: Tensor, text_of: Tensor) -> None:
        """Add a batch to what the weights are computed from: pair k is image `image_of[k]`, text `text_of[k]`."""
        raise NotImplementedError(f"{self.settings.name!r} is trained by gradient descent")

    def solutions(self) -> Iterable[Solution]:
        """The weights for each value that the settings allow, in ascending order, each computed when it is reached.

        They are computed from all pairs that were accumulated until now, which the matcher forgets.
        """
        raise NotImplementedError(f"{self.settings.name!r} is trained by gradient descent")

    @torch.no_grad()
    def adopt(self, solution: Solution) -> None:
        """Take over the weights of a solution."""
        state = self.state_dict()
        for name, weights in solution.weights.items():
            state[name].copy_(weights)

    @abstractmethod
    def load_pretrained(self) -> None:
        """Load the pretrained weights that training starts from, if a tower has any."""

    def encode_own_texts(self, tokeniser: Tokeniser) -> None:
        """Encode the texts that belong to the model itself, such as class names; called after `load_pretrained`."""
        return

    @abstractmethod
    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words, rows of the vocabulary, with these vectors; the others stay random."""
