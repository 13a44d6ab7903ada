"""VSE: two towers, two linear maps into a joint space, and the inner product as the score.

    f(i) = W_f^T phi(i),  g(c) = W_g^T psi(c),  s(i, c) = f(i) . g(c)        (Faghri et al. 2018, Eq. 1-3)

Reference: VSE++: Improving Visual-Semantic Embeddings with Hard Negatives, BMVC 2018.
Needs: images as any image tower reads them; texts as tokens.
When to use it: the base of everything else; fast to train, and its embeddings can be indexed.
Relation to others: `normalise_images = false` is the VSE0 of the paper; `text_projection = true` is the paper's W_g,
which the authors' public code leaves out (the GRU's state is the embedding).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize
from typing_extensions import Self

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.tower import NamedImageTower, NamedTextTower, Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.settings import Count, Flag, Number


class VSESettings(ModelSettings):
    """Sizes and options of a VSE matcher: the paper's sizes, and no text projection, as in its public code.

    `dropout` leaves out this share of the image tower's vector in training, which the paper does not.
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

    def for_data(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings for a vocabulary and, if the corpus brings stored features, their shape."""
        return self.model_copy(update={"words": words, "image": self.image.for_data(features)})

    def build(self) -> VSE:
        """A fresh matcher."""
        return VSE(self)


class VSE(Matcher):
    """See the module's description; a stage can name its parts `image`, `project`, `text` and `project_text`."""

    def __init__(self, settings: VSESettings) -> None:
        super().__init__()
        self.settings: VSESettings = settings
        self.image = settings.image.build()
        self.project = _projection(self.image.size, settings.joint)
        self.text = settings.text.build(settings.words)
        self.project_text: nn.Module = nn.Identity()
        if settings.text_projection:
            self.project_text = _projection(self.text.size, settings.joint)
        elif self.text.size != settings.joint:
            raise RecipeError(
                f"model.text makes vectors of size {self.text.size} and model.joint is {settings.joint}: "
                "make them equal or set model.text_projection = true"
            )

    @property
    def image_input(self) -> ImageInput:
        """What the image tower reads."""
        return self.image.input

    @property
    def embedding_dim(self) -> int:
        """The size of the joint space."""
        return self.settings.joint

    @property
    def pretrained(self) -> Backbone | None:
        """The image tower's backbone, where it has one."""
        return self.image.pretrained

    def encode_images(self, images: Tensor) -> Tensor:
        """What the image tower reads to (images, joint)."""
        vectors = dropout(self.image(images), self.settings.dropout, self.training)
        joint: Tensor = self.project(vectors)
        return normalize(joint, dim=1) if self.settings.normalise_images else joint

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, joint)."""
        joint: Tensor = self.project_text(self.text(tokens))
        return normalize(joint, dim=1) if self.settings.normalise_texts else joint

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner product: (images, texts)."""
        return torch.mm(images, texts.t())

    def start_images(self) -> None:
        """Load the image tower's pretrained weights, where it has some."""
        self.image.start()

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words from given vectors."""
        self.text.start_words(vectors, found)


def _projection(inputs: int, outputs: int) -> nn.Linear:
    """A linear map that starts as the authors' code starts it: Xavier, without bias at first."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
