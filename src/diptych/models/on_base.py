"""A model that reads what its base has computed: while the base is frozen, training computes that only once."""

from __future__ import annotations

from torch import Tensor

from diptych.features.image_input import ImageInput
from diptych.models.matcher import Matcher
from diptych.models.tower import Tokens


class OnBase(Matcher):
    """Encodes as a matcher with a `base_model` does, from the encodings of this base, and shares the matcher's weights.

    An image is a vector of the base, and `Tokens.features` holds the base's vectors of the texts.
    """

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        assert matcher.base_model is not None, "only a model with a base reads what the base has computed"
        assert matcher.base_model.embedding_dim is not None, "a base is an embedding model"
        self.matcher, self.settings = matcher, matcher.settings
        self._input = ImageInput("features", (matcher.base_model.embedding_dim,))

    @property
    def image_input(self) -> ImageInput:
        """A vector of the base."""
        return self._input

    @property
    def embedding_dim(self) -> int | None:
        """The matcher's."""
        return self.matcher.embedding_dim

    @property
    def is_inner_product(self) -> bool:
        """The matcher's."""
        return self.matcher.is_inner_product

    @property
    def compares_within_modality(self) -> bool:
        """If the matcher does."""
        return self.matcher.compares_within_modality

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode the base's vectors of images."""
        return self.matcher.encode_base_images(images)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode the base's vectors of texts; the ids are not read."""
        assert tokens.features is not None, "the base's vectors"
        return self.matcher.encode_base_texts(tokens.features)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The matcher's score."""
        return self.matcher.score(images, texts)

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The matcher's score of each pair."""
        return self.matcher.score_pairs(images, texts)

    def load_pretrained(self) -> None:
        """Load the matcher's pretrained weights."""
        self.matcher.load_pretrained()

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words of the matcher."""
        self.matcher.load_word_vectors(vectors, found)
