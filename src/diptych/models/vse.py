"""VSE: two towers, two linear maps into a joint space, and the inner product as the score.

    f(i) = W_f^T phi(i),  g(c) = W_g^T psi(c),  s(i, c) = f(i) . g(c)        (Faghri et al. 2018, Eq. 1-3)

Reference: VSE++: Improving Visual-Semantic Embeddings with Hard Negatives, BMVC 2018.
Needs: images as pixels or stored features; texts as tokens.
When to use it: the base of everything else; fast to train, and its embeddings can be indexed.
Relation to others: `normalise_images = false` is the VSE0 of the paper; `text_projection = true` is the paper's W_g,
which the authors' public code leaves out (the GRU's state is the embedding).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from diptych.errors import DataError, RecipeError
from diptych.models.image_towers import SmallCNN, StoredFeatures
from diptych.models.matcher import Matcher, ModelSettings, Tokens
from diptych.models.text_towers import TextGRU
from diptych.settings import Count, Flag, Settings


class FeatureSettings(Settings):
    """Images as stored features; `normalise` divides each by its length first."""

    tower: Literal["features"] = "features"
    shape: tuple[int, ...] = ()
    normalise: Flag = False


class CNNSettings(Settings):
    """Images as pixels, through a small CNN trained from scratch."""

    tower: Literal["cnn"]
    pixels: Annotated[int, Field(ge=16, le=512, strict=True)] = 64
    width: Count = 32
    normalise: Flag = False


class VSESettings(ModelSettings):
    """Sizes and options of a VSE matcher: the paper's sizes, and no text projection, as in its public code."""

    name: Literal["vse"] = "vse"
    joint: Count = 1024
    word: Count = 300
    hidden: Count = 1024
    image: Annotated[FeatureSettings | CNNSettings, Field(discriminator="tower")] = FeatureSettings()
    text_projection: Flag = False
    normalise_images: Flag = True
    normalise_texts: Flag = True
    words: int = 0

    def fitted(self, words: int, features: tuple[int, ...] | None) -> VSESettings:
        """These settings for a vocabulary and, if images are stored features, their shape."""
        image = self.image
        if isinstance(image, FeatureSettings):
            if features is None:
                raise DataError(
                    "the recipe reads stored features and the corpus has no stored features, only pictures; "
                    "use a recipe that reads pixels, such as `scenes`"
                )
            image = image.model_copy(update={"shape": features})
        return self.model_copy(update={"words": words, "image": image})

    def build(self) -> VSE:
        """A fresh matcher."""
        return VSE(self)


class VSE(Matcher):
    """See the module's description; a stage can name its parts `image`, `project`, `text` and `project_text`."""

    def __init__(self, settings: VSESettings) -> None:
        super().__init__()
        self.settings: VSESettings = settings
        image = settings.image
        tower = (
            StoredFeatures(image.shape) if isinstance(image, FeatureSettings) else SmallCNN(image.pixels, image.width)
        )
        self.image_input = tower.input
        self.image: nn.Module = tower
        self.project = nn.Linear(tower.size, settings.joint)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.text = TextGRU(settings.words, settings.word, settings.hidden)
        self.project_text: nn.Module = nn.Identity()
        if settings.text_projection:
            self.project_text = nn.Linear(settings.hidden, settings.joint)
            nn.init.xavier_uniform_(self.project_text.weight)
            nn.init.zeros_(self.project_text.bias)
        elif settings.hidden != settings.joint:
            raise RecipeError(
                f"model.hidden is {settings.hidden} and model.joint is {settings.joint}: "
                "make them equal or set model.text_projection = true"
            )

    def encode_images(self, images: Tensor) -> Tensor:
        """Pixels or features to (images, joint)."""
        vectors = self.image(images)
        if self.settings.image.normalise:
            vectors = normalize(vectors, dim=1)
        joint: Tensor = self.project(vectors)
        return normalize(joint, dim=1) if self.settings.normalise_images else joint

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, joint)."""
        joint: Tensor = self.project_text(self.text(tokens))
        return normalize(joint, dim=1) if self.settings.normalise_texts else joint

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The inner product: (images, texts)."""
        return torch.mm(images, texts.t())

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words from given vectors."""
        self.text.start_words(vectors, found)
