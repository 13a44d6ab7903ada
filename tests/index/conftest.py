"""An index of a few entries, and a fake model whose vectors are hashes of the names."""

import hashlib
import os
import uuid
from types import SimpleNamespace

import numpy as np
import pytest

from diptych.index.backend import Content, locate, text_hash
from diptych.index.query import Query
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.writer import Writer
from diptych.index.vectors import encode, encode_set
from diptych.models.engines.engine import Encodings
from support import milvus_server
from support.own_engine import OwnEngine
from support.photo_folders import put as put_file

SIZE = 6


def vectors_of(name, count=1):
    """Vectors of small integers, so that a product is the same in any order of summation: (count, SIZE)."""
    digest = hashlib.sha256(str(name).encode()).digest() * count
    return np.frombuffer(digest, np.uint8)[: SIZE * count].reshape(count, SIZE).astype(np.float32) % 7 - 3


class FakeModel(OwnEngine):
    """Encodes an item as a hash of its name; knows words of up to five letters."""

    address, identity, embedding_dim, is_inner_product, reads_pictures = "runs/fake", "fake", SIZE, True, True

    def __init__(self, is_inner_product=True, set_kinds=()):
        super().__init__()
        self.is_inner_product, self.set_kinds = is_inner_product, set_kinds  # the kinds that are encoded as sets

    def encodings(self, items, kind):
        sets = tuple(vectors_of(item, 3) for item in items) if kind in self.set_kinds else None
        return Encodings(np.concatenate([vectors_of(item) for item in items]), sets)

    def preprocess(self, photo):
        return np.asarray(photo)[0, 0]

    def encode_preprocessed(self, prepared):
        return self.encodings([tuple(pixel.tolist()) for pixel in prepared], "image")

    def encode_texts(self, texts):
        return self.encodings(texts, "text")

    def score(self, images, texts):
        if images.sets is None:
            return -np.abs(images.vectors[:, None] - texts.vectors[None]).sum(2)
        others = texts.vectors[:, None] if texts.sets is None else texts.sets
        return np.array([[(image @ text.T).max(1).sum() for text in others] for image in images.sets], np.float32)

    def known_words(self, words):
        return np.array([len(word) < 6 for word in words], bool)


def put(store, names, texts=(), set_kinds=(), look=None, folder="a", split=None, columns=None):
    """Add images with these names, encoded as by FakeModel, and the texts of the first of them."""
    with store.database.transaction():
        writer = Writer(store, [])
        for text in set(texts):
            encoded_set = encode_set(vectors_of(text, 3)) if "text" in set_kinds else None
            writer.add(Content("text", text_hash(text), encode(vectors_of(text), "float32")[0], encoded_set))
        for number, name in enumerate(names):
            content = writer.content("image", name.encode())
            if content is None:
                hash_of_name = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
                content = writer.add(
                    Content(
                        "image",
                        name.encode(),
                        encode(vectors_of(name), "float32")[0],
                        encode_set(vectors_of(name, 3)) if "image" in set_kinds else None,
                        look=hash_of_name if look is None else look,
                    )
                )
            key = f"{folder}/{len(store.vectors('image')[0])}-{name}"
            about = ImageInfo(None, texts if number == 0 else (), split, columns or {})
            writer.put_image(key, content, (1, 0, ""), about)


def search(searcher, encodings, request, kind, text=None):
    """The answer to one encoded query."""
    return searcher.search([Query(encodings, kind, request, text)])[0]


def keys(answer):
    return [hit.entry.key for hit in answer.hits]


def spec(identity="fake", size=SIZE):
    return IndexSpec("runs/fake", identity, size, False, "float32", "s", None, "0")


@pytest.fixture(scope="session")
def kit():
    """Helpers to make and to search indexes of fake entries."""
    return SimpleNamespace(
        SIZE=SIZE,
        FakeModel=FakeModel,
        UnitModel=UnitModel,
        vectors_of=vectors_of,
        put=put,
        search=search,
        keys=keys,
        spec=spec,
    )


@pytest.fixture
def store(tmp_path):
    """An empty index."""
    store = Store.create(tmp_path / "x.diptych", spec())
    yield store
    store.close()


@pytest.fixture
def photos(tmp_path):
    """A folder of nine drawn photos, one of which has captions."""
    folder = tmp_path / "photos"
    for number in range(9):
        put_file(folder / ("sub" if number % 2 else ".") / f"{number}.png", number)
    put_file(folder / "0.txt", b"a dog\n\na  cat\na dog\n")
    return folder


class UnitModel(FakeModel):
    """The same with vectors of length one, as almost all models have them."""

    def encodings(self, items, kind):
        found = super().encodings(items, kind).vectors + np.float32(0.25)
        return Encodings(found / np.linalg.norm(found, axis=1, keepdims=True))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that need the server of Milvus take long."""
    for item in items:
        if "milvus_port" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def milvus_binaries(pytestconfig):
    """The folder of the server's binaries, which are unpacked once."""
    if not milvus_server.is_installed():
        pytest.skip(milvus_server.MISSING)
    return pytestconfig.cache.mkdir("milvus-2.3.5")


@pytest.fixture(scope="session")
def milvus_port(tmp_path_factory, milvus_binaries):
    """The port of a real Milvus server, one for all processes of the session."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with milvus_server.shared_server(folder, milvus_binaries) as port:
        yield port


@pytest.fixture
def milvus_address(milvus_port):
    """The address of an index that does not exist yet, searched exactly; it is removed afterwards."""
    address = f"milvus://127.0.0.1:{milvus_port}/t{uuid.uuid4().hex[:12]}?index=FLAT"
    yield address
    for place in (locate(address), locate(address).replacement()):
        place.remove()
