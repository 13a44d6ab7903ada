"""A fake model for commands that run as processes of their own: a real one would take seconds to load."""

MODEL = """
import hashlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with it ignored
import numpy as np
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from diptych.text.vocabulary import Vocabulary

class FakeModel(Model):
    address, identity, embedding_dim, is_inner_product = "starter", "fake", 16, True
    reads_pictures, localises, decode_size, quality, tokeniser = True, False, 224, "best", Vocabulary((), (), 1)
    def __init__(self):
        super().__init__(engine=self)
    def encode_texts(self, texts):
        rows = [list(hashlib.sha256(text.encode()).digest()[:16]) for text in texts]
        return Encodings(np.array(rows, np.float32) / 1000)
    def preprocess(self, photo):
        return np.asarray(photo.resize((1, 1)))
    def encode_preprocessed(self, prepared):
        return self.encode_texts([pixel.tobytes().hex() for pixel in prepared])
    def known_words(self, words):
        return np.ones(len(words), bool)

opened = []
def load(address, device="auto", *, quality="best"):
    opened.append(address)
    return FakeModel()
"""
