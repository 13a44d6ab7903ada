"""A service over a real index of a few generated photos, whose model is a hash."""

import asyncio
import hashlib
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from diptych.index.encoder import Encodings
from diptych.index.search import Searcher
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.serve.app import create_app
from diptych.text.tokenisers.treebank import tokenise


class Encoder:
    """A text is the sum of its words, an image that of the word for its colour; counts how often it is asked."""

    address, identity, size, rescores = "runs/fake", "fake", 64, False

    def __init__(self):
        self.passes = []  # the number of texts, or of images, in each

    def prepare(self, photo):
        return np.asarray(photo.resize((1, 1)))

    def images(self, prepared):
        self.passes.append(len(prepared))
        return self._encode([[("red", "green", "blue")[int(pixel[0, 0].argmax())]] for pixel in prepared])

    def texts(self, texts):
        self.passes.append(len(texts))
        if "poison" in texts:
            raise ValueError("a text that no model can read")
        encoded = self._encode([tokenise(text) for text in texts])
        encoded.vectors[[text == "venom" for text in texts]] = np.nan
        return encoded

    def words(self, texts):
        return self._encode(texts)

    def _encode(self, texts):
        vectors = np.full((len(texts), self.size), 1e-3, np.float32)
        for row, words in enumerate(texts):
            for word in words:
                vectors[row, hashlib.sha256(word.encode()).digest()[0] % self.size] += 1
        return Encodings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def score(self, images, texts):
        return images.vectors @ texts.vectors.T

    def known(self, words):
        return np.array([word != "zebra" for word in words], bool)


COLOURS = {"red": (250, 10, 10), "green": (10, 250, 10), "blue": (10, 10, 250)}


def fill(folder, names=("red", "green", "blue"), size=(60, 40)):
    """A photo of each colour with one caption, the last one in a folder below."""
    for name in names:
        place = folder / "below" if name == names[-1] else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, COLOURS[name]).save(place / f"{name}.jpg")
        (place / f"{name}.txt").write_text(f"a {name} thing")


@contextmanager
def served(searchers, **options):
    """A client of a service over these indexes; what it raises by mistake, the client gets as an answer."""
    app = create_app(searchers, **options)
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def together(app, addresses):
    """The answers to some addresses that are asked at the same time."""

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.get(address) for address in addresses))

    return asyncio.run(ask())


def searcher_of(folder, file, encoder=None):
    """A fresh index of a folder."""
    encoder = encoder or Encoder()
    sync(encoder, str(folder), file)
    return Searcher(Store.open(file), encoder)


@pytest.fixture(scope="session")
def kit():
    """What tests make services of."""
    return SimpleNamespace(Encoder=Encoder, fill=fill, served=served, together=together, searcher_of=searcher_of)


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def searcher(folder, tmp_path):
    searcher = searcher_of(folder, tmp_path / "photos.diptych")
    yield searcher
    searcher.store.close()


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """A client of a service that no test changes."""
    place = tmp_path_factory.mktemp("standing")
    fill(place / "photos")
    searcher = searcher_of(place / "photos", place / "photos.diptych")
    with served({"photos": searcher}) as client:
        client.searcher = searcher
        yield client
    searcher.store.close()
