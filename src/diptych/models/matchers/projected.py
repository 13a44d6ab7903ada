"""A projection head on each side of an embedding model: two layers after the joint space, and the cosine as the score.

    z = normalise( W_2 max(0, W_1 h + b_1) + b_2 ),  h the base's embedding of an image or a text;  s(i, c) = z_i . z_c

Reference: Jain and Verma, Contrastive Learning of Visual-Semantic Embeddings (ConVSE), section IV-A.
Needs: an embedding model as its base, which reads images and texts as ever.
When to use it: attached to a trained base by a stage's `head`; what the base learned is the start, the head begins at
random. A small `output` makes a small index.
Relation to others: `bias = false` leaves out b_1, as the authors' public code does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn
from torch.nn.functional import normalize
from typing_extensions import Self

from diptych import registry
from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.matcher import EncodedBatch, Matcher, ModelSettings
from diptych.models.tower import Tokens
from diptych.settings import Count, Flag, Settings


def _named_base(value: Any) -> Any:
    is_table = not isinstance(value, ModelSettings)
    return registry.resolve("models.matchers", value, "model.base", ModelSettings) if is_table else value


class Head(Settings):
    """Sizes of the two layers, the same for both sides; `bias` is that of the first layer."""

    hidden: Count = 2048
    output: Count = 1024
    bias: Flag = True


class ProjectedSettings(ModelSettings):
    """A base model by its own settings, and the head on each of its sides."""

    name: Literal["projected"] = "projected"
    base: Annotated[SerializeAsAny[ModelSettings], BeforeValidator(_named_base)]
    head: Head = Head()

    def for_data(self, words: int, features: tuple[int, ...] | None) -> Self:
        """These settings with a base that is fitted."""
        return self.model_copy(update={"base": self.base.for_data(words, features)})

    def build(self) -> Projected:
        """A fresh matcher, base and head at random."""
        return Projected(self.base.build(), self.head)


class Projected(Matcher):
    """See the module's description; its parts are `base` and what is in it, `head_images` and `head_texts`."""

    def __init__(self, base: Matcher, head: Head) -> None:
        """Attach fresh heads to a base as it is."""
        super().__init__()
        if base.embedding_dim is None:
            raise RecipeError(
                f"head: needs an embedding model, one vector for an image and one for a text, and "
                f"{base.settings.name!r} is none; leave the head out or start from another run"
            )
        self.settings: ProjectedSettings = ProjectedSettings(base=base.settings, head=head)
        self.base = base
        self.head_images = _layers(base.embedding_dim, head)
        self.head_texts = _layers(base.embedding_dim, head)

    @property
    def embedding_dim(self) -> int:
        """The size of the vectors after the head."""
        return self.settings.head.output

    @property
    def image_input(self) -> ImageInput:
        """What the base reads."""
        return self.base.image_input

    @property
    def pretrained(self) -> Backbone | None:
        """The base's backbone, where it has one."""
        return self.base.pretrained

    @property
    def reads_views(self) -> bool:
        """Where the base does."""
        return self.base.reads_views

    @property
    def extra_terms(self) -> tuple[str, ...]:
        """Those of the base."""
        return self.base.extra_terms

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a batch to train on, with the base's own terms."""
        encoded = self.base.encode_batch(images, tokens, image_of)
        return EncodedBatch(self._images(encoded.images), self._texts(encoded.texts), encoded.terms)

    def encode_images(self, images: Tensor) -> Tensor:
        """What the base reads to (images, output)."""
        return self._images(self.base.encode_images(images))

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, output)."""
        return self._texts(self.base.encode_texts(tokens))

    def _images(self, vectors: Tensor) -> Tensor:
        return normalize(self.head_images(vectors), dim=1)

    def _texts(self, vectors: Tensor) -> Tensor:
        return normalize(self.head_texts(vectors), dim=1)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine: (images, texts)."""
        return torch.mm(images, texts.t())

    def start_images(self) -> None:
        """Load the base's pretrained weights, where it has some."""
        self.base.start_images()

    def start_words(self, vectors: Tensor, found: Tensor) -> None:
        """Start the found words of the base from given vectors."""
        self.base.start_words(vectors, found)


def _layers(inputs: int, head: Head) -> nn.Sequential:
    first = nn.Linear(inputs, head.hidden, bias=head.bias)
    second = nn.Linear(head.hidden, head.output)
    for layer in (first, second):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.ReLU(), second)
