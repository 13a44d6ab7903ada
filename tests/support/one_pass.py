"""One pass over a folder, with a model that encodes a picture as its mean colour."""

import threading

import numpy as np

from diptych.index.sources.folder import FolderSource
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.update import Update
from diptych.models.engines.engine import Encodings
from support.own_engine import OwnEngine

NOT_FINITE = 66  # the red of pictures whose encoding is not finite


class ColourModel(OwnEngine):
    """Encodes a photo as its mean colour, and a text as its length; records the size of each batch."""

    address, identity, embedding_dim, is_inner_product = "runs/fake", "fake", 3, True

    def __init__(self):
        super().__init__()
        self.batches = []

    def preprocess(self, photo):
        return np.asarray(photo.resize((1, 1)), np.float32)[0, 0]

    def encode_preprocessed(self, prepared):
        self.batches.append(len(prepared))
        vectors = np.stack(prepared)
        return Encodings(np.where(vectors[:, :1] == NOT_FINITE, np.nan, vectors).astype(np.float32))

    def encode_texts(self, texts):
        return Encodings(np.array([[len(text), 0, 1] for text in texts], np.float32))


def make_store(file, folder):
    """An empty index of a folder."""
    return Store.create(file, IndexSpec("runs/fake", "fake", 3, False, "float32", str(folder), str(folder), "0"))


def run(store, folder, model=None, interrupted=None, progress=None):
    """Bring the index up to date with the folder; returns what was done."""
    source = FolderSource(folder)
    update = Update(store, store.spec, source, source.listing(), model or ColourModel(), workers=0)
    update.run(interrupted or threading.Event(), progress)
    return update
