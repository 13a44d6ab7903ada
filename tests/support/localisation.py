"""Photos of two colours, a model that matches the colours that phrases name, and proposals without a segmentation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from diptych.data.corpus import Box, Corpus, Phrase
from diptych.errors import ImageError
from diptych.features import proposals
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.regions import Regions
from diptych.model import Model
from diptych.models.matchers.two_towers import TwoTowers
from diptych.text.vocabulary import Vocabulary

COLOURS = ("red", "green", "blue")
PROPOSED = ImageInput("crops", (3, 32, 32), Crops(name="whole"), Regions(method="selective-search", count=6))
LEFT, RIGHT, WHOLE, NONE = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0,) * 4


class Tiny(Backbone):
    """A map of 4 x 4 cells with their mean colours."""

    name, side, size, grid, any_side = "tiny", 32, 3, (16, 3), True

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        cells = pixels.float().unfold(2, 8, 8).unfold(3, 8, 8).mean((4, 5))
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class ColourMatcher(TwoTowers):
    """Scores a region with a phrase by how much of the colour that the phrase names it has; records its calls."""

    settings: ClassVar = None

    def __init__(self, vocabulary, image_input=PROPOSED):
        nn.Module.__init__(self)
        self.backbone, self._image_input, self.calls = Tiny(), image_input, []
        table = torch.zeros(len(vocabulary), 3)
        for column, colour in enumerate(COLOURS):
            if colour in vocabulary.ids:
                table[vocabulary.ids[colour], column] = 1
        self.register_buffer("colours", table)

    @property
    def image_input(self):
        return self._image_input

    @property
    def pretrained(self):
        return self.backbone

    def encode_images(self, images):
        self.calls.append(("images", tuple(images.shape)))
        return nn.functional.normalize(images, dim=-1)

    def encode_texts(self, tokens):
        self.calls.append(("texts", len(tokens.ids)))
        return self.colours[tokens.ids].sum(1)

    def score(self, images, texts):
        self.calls.append(("score", (len(images), len(texts))))
        scores = images @ texts.T
        return scores if images.ndim == 2 else scores.amax(1)

    def load_pretrained(self):
        pass

    def load_word_vectors(self, vectors, found):
        pass


class TwoColours:
    """A photo with one colour on the left half and another on the right half."""

    def __init__(self, left, right, size=(200, 100)):
        self.left, self.right, self.size = left, right, size

    def load(self):
        photo = Image.new("RGB", self.size, self.left)
        photo.paste(self.right, (self.size[0] // 2, 0, *self.size))
        return photo


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


@pytest.fixture
def two_colours():
    """Makes a photo from the colours of its halves and, optionally, its size."""
    return TwoColours


@pytest.fixture
def broken():
    """A photo that cannot be decoded."""
    return Broken()


@pytest.fixture
def colour_matcher():
    """Makes a matcher from a vocabulary and, optionally, an image input."""
    return ColourMatcher


@pytest.fixture(autouse=True)
def proposed(monkeypatch):
    """Proposes the whole photo and its two halves; `proposed.photos` counts the photos that were proposed for."""
    counter = SimpleNamespace(photos=0)

    def proposer(regions):
        def propose(photo):
            counter.photos += 1
            boxes = [WHOLE, LEFT, RIGHT]
            return np.array(boxes + [NONE] * (regions.count - len(boxes)), np.float32)

        return propose

    monkeypatch.setattr(proposals, "proposer", proposer)
    return counter


@pytest.fixture
def corpus() -> Corpus:
    """Three photos; the texts of each mention the thing on its left once and the thing on its right twice."""
    photos = [TwoColours("red", "blue"), TwoColours("blue", "red"), TwoColours("red", "blue")]
    texts = ["a red thing and a blue thing", "the blue thing"]
    phrases = [
        (Phrase("a red thing", "1", ("left", "thing")), Phrase("a blue thing", "2", ("thing",)), Phrase("air", "9")),
        (Phrase("the blue thing", "2", ("thing",)),),
    ]
    count = len(photos)
    return Corpus(
        "halves",
        [f"{number}.jpg" for number in range(count)],
        np.arange(count),
        np.full(count, "test"),
        texts * count,
        np.arange(count).repeat(2),
        np.full(2 * count, "test"),
        pictures=photos,
        boxes=[[Box("1", *LEFT), Box("2", *RIGHT)]] * count,
        phrases=phrases * count,
    )


@pytest.fixture
def model(corpus) -> Model:
    vocabulary = Vocabulary.from_texts([*corpus.texts, "a green thing"], 1)
    return Model.from_matcher(ColourMatcher(vocabulary).eval(), vocabulary)
