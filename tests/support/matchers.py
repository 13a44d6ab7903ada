"""A matcher that compares sets with sets: no single vector stands for an image or a text."""

from typing import Literal

import torch
from torch import nn
from torch.nn.functional import normalize

from diptych.features.image_input import ImageInput
from diptych.models.matcher import Matcher, ModelSettings


class InteractionSettings(ModelSettings):
    """`side` is that of the pictures, in pixels."""

    name: Literal["interaction"] = "interaction"
    side: int = 8

    def for_data(self, vocabulary_size, feature_shape):
        return self

    def build(self):
        return InteractionMatcher(self)


class InteractionMatcher(Matcher):
    """Compares each colour channel of a picture with its most similar word; the score is the mean over the channels."""

    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.words = nn.Embedding(200, settings.side**2)

    @property
    def image_input(self):
        return ImageInput("pixels", (3, self.settings.side, self.settings.side))

    def encode_images(self, images):
        return images.float().flatten(2) / 255

    def encode_texts(self, tokens):
        return self.words(tokens.ids)

    def score(self, images, texts):
        cosines = torch.einsum("ird,tld->itrl", normalize(images, dim=2), normalize(texts, dim=2))
        return cosines.amax(3).mean(2)

    def load_pretrained(self):
        return

    def load_word_vectors(self, vectors, found):
        return
