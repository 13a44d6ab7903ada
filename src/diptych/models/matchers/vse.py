"""VSE: two towers, two linear maps into a joint space, and the inner product as the score.

    f(i) = W_f^T phi(i),  g(c) = W_g^T psi(c),  s(i, c) = f(i) . g(c)        (Faghri et al. 2018, Eq. 1-3)

Reference: VSE++: Improving Visual-Semantic Embeddings with Hard Negatives, BMVC 2018.
Needs: images for any image tower; texts as tokens.
When to use it: as the base of everything else; it is fast to train, and its embeddings can be indexed.
Relation to others: `normalise_images = false` is the paper's VSE0; `text_projection = true` is the paper's W_g, which
the authors' public code omits (the GRU's state is the embedding). The paper does not say how W_g is initialised: it
begins as the identity if it is square, because max of hinges leaves its plateau later if it is random.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.precision import normalize
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.tower import NamedImageTower, NamedTextTower, Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.settings import Count, Flag, Number


class VSESettings(ModelSettings):
    """Sizes and options; the defaults are the paper's sizes, without a text projection, as in its public code.

    `dropout` applies to the image tower's vector in training; the paper has none.
    """

    name: Literal["vse"] = "vse"
    joint: Count = 1024
    image: NamedImageTower = FeatureSettings()
    text: NamedTextTower = GRUSettings()
    text_projection: Flag = False
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    normalise_images: Flag = True
    normalise_texts: Flag = True
    words: int = 0

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with the vocabulary's size and the shape of stored features, if any."""
        towers = {"image": self.image.for_data(feature_shape), "text": self.text.completed()}
        return self.model_copy(update={"words": vocabulary_size, **towers})

    def build(self) -> VSE:
        """A matcher with random weights."""
        return VSE(self)


class VSE(Matcher):
    """See the module docstring. Its parts are `image`, `project`, `text` and `project_text`."""

    def __init__(self, settings: VSESettings) -> None:
        super().__init__()
        self.settings: VSESettings = settings
        self.image = settings.image.build()
        self.project = _projection(self.image.size, settings.joint)
        self.text = settings.text.build(settings.words)
        self.project_text: nn.Module = nn.Identity()
        if settings.text_projection:
            self.project_text = _text_projection(self.text.size, settings.joint)
        elif self.text.size != settings.joint:
            raise RecipeError(
                f"the text tower's vectors have size {self.text.size} and model.joint is {settings.joint}: "
                "make them equal or set model.text_projection = true"
            )

    @property
    def image_input(self) -> ImageInput:
        """The image tower's input."""
        return self.image.input

    @property
    def embedding_dim(self) -> int:
        """The size of the joint space."""
        return self.settings.joint

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, if any."""
        return self.image.pretrained

    @property
    def offers_unnormalised(self) -> bool:
        """Always."""
        return True

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, joint)."""
        joint = self.unnormalised_images(images)
        return normalize(joint, dim=1) if self.settings.normalise_images else joint

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, joint)."""
        joint = self.unnormalised_texts(tokens)
        return normalize(joint, dim=1) if self.settings.normalise_texts else joint

    def unnormalised_images(self, images: Tensor) -> Tensor:
        """The images after the linear map: (images, joint)."""
        joint: Tensor = self.project(dropout(self.image(images), self.settings.dropout, self.training))
        return joint

    def unnormalised_texts(self, tokens: Tokens) -> Tensor:
        """The texts after the linear map, if there is one: (texts, joint)."""
        joint: Tensor = self.project_text(self.text(tokens))
        return joint

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner product: (images, texts)."""
        return torch.mm(images, texts.t())

    def load_pretrained(self) -> None:
        """Load the towers' pretrained weights, if any."""
        self.image.load_pretrained()
        self.text.load_pretrained()

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors."""
        self.text.load_word_vectors(vectors, found)


def _projection(inputs: int, outputs: int) -> nn.Linear:
    """A linear map, initialised as in the authors' code: Xavier weights, zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _text_projection(inputs: int, outputs: int) -> nn.Linear:
    """A linear map that begins as the identity, as if there were none; if the sizes differ, it is random."""
    layer = _projection(inputs, outputs)
    if inputs == outputs:
        nn.init.eye_(layer.weight)
    return layer
