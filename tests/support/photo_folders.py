"""Folders of drawn photos, a model that hashes what it encodes, and what an index of them holds."""

import hashlib
import os
import time

import numpy as np
from PIL import Image

from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.models.engines.engine import Encodings
from support.own_engine import OwnEngine


class FakeModel(OwnEngine):
    """Vectors from a hash of what is to be encoded; counts what it encodes."""

    address, identity, embedding_dim, is_inner_product = "fake", "", 8, True

    def __init__(self, identity="f" * 64, pause=0.0, sets=False):
        super().__init__()
        self.identity, self.pause, self.sets = identity, pause, sets
        self.seen = []

    def preprocess(self, photo):
        return np.asarray(photo.resize((6, 6)), np.uint8).transpose(2, 0, 1).copy()

    def encode_preprocessed(self, prepared):
        time.sleep(self.pause * len(prepared))
        return self.encodings([pixels.tobytes() for pixels in prepared])

    def encode_texts(self, texts):
        return self.encodings([text.encode() for text in texts])

    def encodings(self, contents):
        self.seen += contents
        vectors = np.stack([np.frombuffer(hashlib.sha256(content).digest(), np.uint8)[:8] for content in contents])
        vectors = vectors.astype(np.float32) / 256
        return Encodings(vectors, tuple(row[None] for row in vectors) if self.sets else None)


CLOCK = iter(range(10**18, 10**19, 10**9))  # every change has a time of its own


def draw(number, size=(12, 9)):
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8))


def put(path, content):
    """Write a file: an image by its number, or bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, int):
        draw(content).save(path, "PNG")
    else:
        path.write_bytes(content)
    moment = next(CLOCK)
    os.utime(path, ns=(moment, moment))


def view(path):
    """Everything an index holds, without the ids, which depend on its history."""
    store = Store.open(path)
    images, vectors = store.vectors("image")
    captions = store.captions(images)
    texts, text_vectors = store.vectors("text")
    encoded = {entry.text: vector.tobytes() for entry, vector in zip(store.entries(texts), text_vectors, strict=True)}
    found = {
        entry.key: (
            *(vector.tobytes(), captions[entry.id], [encoded[text] for text in captions[entry.id]], entry.path),
            *(entry.folder, entry.taken, entry.width, entry.height, entry.split, store.thumbnail(entry.id)),
        )
        for entry, vector in zip(store.entries(images), vectors, strict=True)
    }
    contents = store.database.rows("SELECT kind, hash, checksum, look FROM contents ORDER BY kind, hash")
    problems = store.problems()
    store.close()
    return found, contents, problems


def ids(path):
    store = Store.open(path)
    found = {entry.key: entry.id for entry in store.entries(store.vectors("image")[0])}
    store.close()
    return found


def sync_now(folder, path):
    path.unlink(missing_ok=True)
    sync(FakeModel(), str(folder), path, workers=0)
    return path
