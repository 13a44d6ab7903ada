"""A service over a real index of a few generated photos, with a fake model."""

import asyncio
import hashlib
import io
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from diptych.index.search import Searcher
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.models.engines.engine import Encodings
from diptych.serve.app import create_app
from diptych.serve.schemas.answers import SearchAnswer
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


def client_of(app):
    """A client of a service, in which an unexpected exception becomes a response."""
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@contextmanager
def served(searchers, **options):
    """A client of a service over these indexes."""
    with client_of(create_app(searchers, **options)) as client:
        yield client


def together(app, addresses):
    """The responses to requests that are sent at the same time."""

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.get(address) for address in addresses))

    return asyncio.run(ask())


def searcher_of(folder, file, model=None):
    """A fresh index of a folder."""
    model = model or FakeModel()
    sync(model, str(folder), file)
    return Searcher(Store.open(file), model)


def keys(response):
    """The keys of the hits in a response, which must conform to its schema."""
    assert response.status_code == 200, response.text
    SearchAnswer.model_validate(response.json())  # the response is written without pydantic
    return [hit["key"] for hit in response.json()["hits"]]


def error_of(response, status):
    """The one sentence of an error response."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    assert body["error"]
    assert "\n" not in body["error"]
    return body["error"]


def picture(colour, size=(50, 50), form="PNG"):
    """The bytes of an image file."""
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, form)
    return out.getvalue()


SCOPE = {
    "type": "http",
    "method": "HEAD",
    "scheme": "http",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1")],
}


@pytest.fixture(scope="session")
def kit():
    """Helpers to make and to use services."""
    return SimpleNamespace(
        FakeModel=FakeModel,
        SCOPE=SCOPE,
        client_of=client_of,
        error_of=error_of,
        fill=fill,
        keys=keys,
        picture=picture,
        searcher_of=searcher_of,
        served=served,
        together=together,
    )


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
def client(tmp_path_factory):
    """A client of a service that no test changes."""
    place = tmp_path_factory.mktemp("client")
    fill(place / "photos")
    searcher = searcher_of(place / "photos", place / "photos.diptych")
    with served({"photos": searcher}) as client:
        client.searcher = searcher
        yield client
    searcher.store.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two indexes of one model."""
    place = tmp_path_factory.mktemp("two")
    model = FakeModel()
    fill(place / "first")
    fill(place / "second", names=("blue", "red"))
    files = {name: place / f"{name}.diptych" for name in ("first", "second")}
    return {name: searcher_of(place / name, file, model) for name, file in files.items()}
