"""A base whose heads read its embeddings before they are normalised, as training encodes it once if it is frozen."""

from __future__ import annotations

from torch import Tensor

from diptych.features.backbone import Backbone
from diptych.features.image_input import ImageInput
from diptych.models.matcher import Matcher
from diptych.models.tower import Tokens


class Unnormalised(Matcher):
    """Shares the weights of a matcher, and encodes as far as the normalisation that ends the matcher's encoding."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        assert matcher.offers_unnormalised, "checked by Head.on"
        self.matcher, self.settings = matcher, matcher.settings

    @property
    def image_input(self) -> ImageInput:
        """The matcher's."""
        return self.matcher.image_input

    @property
    def pretrained(self) -> Backbone | None:
        """The matcher's."""
        return self.matcher.pretrained

    @property
    def embedding_dim(self) -> int | None:
        """The matcher's."""
        return self.matcher.embedding_dim

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, size)."""
        return self.matcher.unnormalised_images(images)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, size)."""
        return self.matcher.unnormalised_texts(tokens)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Nothing: the score of a model is for its own embeddings."""
        raise NotImplementedError("only heads read embeddings before they are normalised")

    def load_pretrained(self) -> None:
        """Load the matcher's pretrained weights."""
        self.matcher.load_pretrained()

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words of the matcher."""
        self.matcher.load_word_vectors(vectors, found)
