"""Projection heads on an embedding model: two layers after the joint space on each side, and the cosine as the score.

    z = normalise( W_2 max(0, W_1 h + b_1) + b_2 ),  h the base's embedding of an image or a text;  s(i, c) = z_i . z_c

With `normalise_input = false`, h is the embedding before the base normalises it. With `residual`, a head is added to
what it reads, and W_2 and b_2 start at zero:

    z = normalise( h + W_2 max(0, W_1 h + b_1) + b_2 )

Reference: Jain and Verma, Contrastive Learning of Visual-Semantic Embeddings (ConVSE), section IV-A and Algorithm 1,
which feeds the heads with h before it is normalised, as its recipes do; the residual form is that of He et al. 2016,
Deep Residual Learning for Image Recognition, Eq. 1.
Needs: an embedding model as its base, which reads images and texts as before; for residual heads, one whose score is
an inner product.
When to use it: a stage's `head` attaches it to a trained base. A plain head starts at random, so the first scores are
at chance whatever the base has learned, and a small `output` makes a small index. A residual head starts as the base,
with its scores if these are cosines, and changes it as far as the data asks for, which suits a pretrained base and
little data.
Relation to others: a matcher around any other embedding model. `bias = false` omits b_1, as the authors' public code
does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, SerializeAsAny, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from diptych import registry
from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.layers.precision import normalize
from diptych.models.layers.standardise import Standardised
from diptych.models.matcher import EncodedBatch, Matcher, ModelSettings
from diptych.models.tower import Tokens
from diptych.models.unnormalised import Unnormalised
from diptych.settings import Count, Flag, Settings
from diptych.text.tokenisers.tokeniser import Tokeniser


def _named_base(value: Any) -> Any:
    is_table = not isinstance(value, ModelSettings)
    return registry.resolve("models.matchers", value, "model.base", ModelSettings) if is_table else value


class Head(Settings):
    """Sizes of the two layers, the same for both sides, and whether the first layer has a bias.

    `residual` adds the head's output to its input; `output` is then the base's size and can be left out.
    `normalise_input` says whether heads read the base's embeddings, or with `false` what the base normalises. The
    default is what heads did before there was this setting, so that older runs and recipes keep their meaning.
    """

    hidden: Count = 2048
    output: Count | None = 1024
    bias: Flag = True
    residual: Flag = False
    normalise_input: Flag = True

    @model_validator(mode="before")
    @classmethod
    def _output_of_the_base(cls, content: Any) -> Any:
        """A residual head without an `output` has the base's size, which is not known yet."""
        if isinstance(content, dict) and content.get("residual") is True:
            return {"output": None, **content}
        return content

    def on(self, base: Matcher) -> Head:
        """The head for a base, with the size of its output; raises RecipeError if the base cannot have it."""
        name, size = base.settings.name, base.embedding_dim
        if size is None:
            raise RecipeError(
                f"head: needs an embedding model, one vector for an image and one for a text, and {name!r} is not; "
                "remove the head or start from another run"
            )
        if not (self.normalise_input or base.offers_unnormalised):
            raise RecipeError(
                f"head.normalise_input = false: {name!r} has no embeddings before their normalisation; set "
                "normalise_input = true"
            )
        if self.residual and not base.is_inner_product:
            raise RecipeError(
                f"head.residual: a residual head starts at the inner product, and the score of {name!r} is another; "
                "leave residual out or start from another run"
            )
        if self.residual and self.output not in (None, size):
            raise RecipeError(
                f"head.output = {self.output}: a residual head adds to vectors of size {size}; leave output out"
            )
        return self if self.output is not None else self.model_copy(update={"output": size})


class ProjectedSettings(ModelSettings):
    """The settings of the base model, and those of the heads."""

    name: Literal["projected"] = "projected"
    base: Annotated[SerializeAsAny[ModelSettings], BeforeValidator(_named_base)]
    head: Head = Head()

    def for_data(self, vocabulary_size: int, feature_shape: tuple[int, ...] | None) -> Self:
        """These settings with the base completed by the data."""
        return self.model_copy(update={"base": self.base.for_data(vocabulary_size, feature_shape)})

    def build(self) -> Projected:
        """A matcher with random weights in base and heads."""
        return Projected(self.base.build(), self.head)


class Projected(Matcher):
    """See the module docstring. Its parts are `base` and what is in it, `head_images` and `head_texts`."""

    def __init__(self, base: Matcher, head: Head) -> None:
        """Attach heads to a base, whose weights stay as they are."""
        super().__init__()
        head = head.on(base)
        assert base.embedding_dim is not None, "checked by Head.on"
        self.settings: ProjectedSettings = ProjectedSettings(base=base.settings, head=head)
        self.base = base
        self.head_images = _layers(base.embedding_dim, self.embedding_dim, head)
        self.head_texts = _layers(base.embedding_dim, self.embedding_dim, head)

    @property
    def embedding_dim(self) -> int:
        """The size of the vectors after the heads."""
        size = self.settings.head.output
        assert size is not None, "set by Head.on"
        return size

    @property
    def image_input(self) -> ImageInput:
        """The base's input."""
        return self.base.image_input

    @property
    def pretrained(self) -> Backbone | None:
        """The base's backbone, if any."""
        return self.base.pretrained

    @property
    def standardised_images(self) -> Standardised | None:
        """The base's."""
        return self.base.standardised_images

    @property
    def standardised_texts(self) -> Standardised | None:
        """The base's."""
        return self.base.standardised_texts

    @property
    def reads_views(self) -> bool:
        """If the base does."""
        return self.base.reads_views

    @property
    def base_model(self) -> Matcher | None:
        """What the heads read, unless the base adds terms to the loss, which need more than its encodings."""
        if self.base.extra_terms:
            return None
        return self.base if self.settings.head.normalise_input else Unnormalised(self.base)

    @property
    def offers_unnormalised(self) -> bool:
        """Always."""
        return True

    @property
    def extra_terms(self) -> tuple[str, ...]:
        """The base's."""
        return self.base.extra_terms

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a training batch, with the base's extra terms."""
        encoded = self._encode_batch_for_heads(images, tokens, image_of)
        projected = (
            self._projected(self.head_images, encoded.images),
            self._projected(self.head_texts, encoded.texts),
        )
        unit = normalize(projected[0], dim=1), normalize(projected[1], dim=1)
        return EncodedBatch(*unit, encoded.terms, unnormalised=projected)

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, output)."""
        return normalize(self.unnormalised_images(images), dim=1)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, output)."""
        return normalize(self.unnormalised_texts(tokens), dim=1)

    def unnormalised_images(self, images: Tensor) -> Tensor:
        """Encode images, without the normalisation at the end: (images, output)."""
        encode = self.base.encode_images if self.settings.head.normalise_input else self.base.unnormalised_images
        return self._projected(self.head_images, encode(images))

    def unnormalised_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts, without the normalisation at the end: (texts, output)."""
        encode = self.base.encode_texts if self.settings.head.normalise_input else self.base.unnormalised_texts
        return self._projected(self.head_texts, encode(tokens))

    def encode_base_images(self, vectors: Tensor) -> Tensor:
        """Apply the head of the images to what it reads: (images, output)."""
        return normalize(self._projected(self.head_images, vectors), dim=1)

    def encode_base_texts(self, vectors: Tensor) -> Tensor:
        """Apply the head of the texts to what it reads: (texts, output)."""
        return normalize(self._projected(self.head_texts, vectors), dim=1)

    def _encode_batch_for_heads(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """What the heads read of a training batch, with the base's extra terms."""
        if self.settings.head.normalise_input:
            return self.base.encode_batch(images, tokens, image_of)
        if not self.base.extra_terms:
            return EncodedBatch(self.base.unnormalised_images(images), self.base.unnormalised_texts(tokens))
        encoded = self.base.encode_batch(images, tokens, image_of)
        assert encoded.unnormalised is not None, "offered by the base"
        return EncodedBatch(*encoded.unnormalised, encoded.terms)

    def _projected(self, layers: nn.Module, vectors: Tensor) -> Tensor:
        changes: Tensor = layers(vectors)
        return vectors + changes if self.settings.head.residual else changes

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine: (images, texts)."""
        return torch.mm(images, texts.t())

    def load_pretrained(self) -> None:
        """Load the base's pretrained weights, if any."""
        self.base.load_pretrained()

    def encode_own_texts(self, tokeniser: Tokeniser) -> None:
        """Encode those of the base."""
        self.base.encode_own_texts(tokeniser)

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words of the base with these vectors."""
        self.base.load_word_vectors(vectors, found)


def _layers(inputs: int, outputs: int, head: Head) -> nn.Sequential:
    first = nn.Linear(inputs, head.hidden, bias=head.bias)
    second = nn.Linear(head.hidden, outputs)
    for layer in (first, second):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    if head.residual:
        nn.init.zeros_(second.weight)
    return nn.Sequential(first, nn.ReLU(), second)
