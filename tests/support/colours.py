"""An index of a few photos, each of one colour, and a fake model that knows colours by their names."""

import hashlib
import io

import numpy as np
from PIL import Image

from diptych.index.search import Searcher
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.models.engines.engine import Encodings
from diptych.text.tokenisers.treebank import tokenise
from support.own_engine import OwnEngine


class FakeModel(OwnEngine):
    """A text is the sum of its words, an image the word for its colour; records the size of each pass."""

    address, identity, embedding_dim, is_inner_product = "runs/fake", "fake", 64, True

    def __init__(self):
        super().__init__()
        self.passes = []  # the number of texts, or of images, in each

    def preprocess(self, photo):
        return np.asarray(photo.resize((1, 1)))

    def encode_preprocessed(self, prepared):
        self.passes.append(len(prepared))
        return self._encode([[("red", "green", "blue")[int(pixel[0, 0].argmax())]] for pixel in prepared])

    def encode_texts(self, texts):
        self.passes.append(len(texts))
        if "poison" in texts:
            raise ValueError("a text that no model can read")
        encoded = self._encode([tokenise(text) for text in texts])
        encoded.vectors[[text == "venom" for text in texts]] = np.nan
        return encoded

    def encode_tokens(self, texts):
        return self._encode(texts)

    def _encode(self, texts):
        vectors = np.full((len(texts), self.embedding_dim), 1e-3, np.float32)
        for row, words in enumerate(texts):
            for word in words:
                vectors[row, hashlib.sha256(word.encode()).digest()[0] % self.embedding_dim] += 1
        return Encodings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def score(self, images, texts):
        return images.vectors @ texts.vectors.T

    def known_words(self, words):
        return np.array([word != "zebra" for word in words], bool)


COLOURS = {"red": (250, 10, 10), "green": (10, 250, 10), "blue": (10, 10, 250)}


def fill(folder, names=("red", "green", "blue"), size=(60, 40)):
    """A photo of each colour with one caption, the last one in a folder below."""
    for name in names:
        place = folder / "below" if name == names[-1] else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, COLOURS[name]).save(place / f"{name}.jpg")
        (place / f"{name}.txt").write_text(f"a {name} thing")


def searcher_of(folder, file, model=None):
    """A fresh index of a folder."""
    model = model or FakeModel()
    sync(model, str(folder), file)
    return Searcher(Store.open(file), model)


def picture(colour, size=(50, 50), form="PNG"):
    """The bytes of an image file."""
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, form)
    return out.getvalue()
