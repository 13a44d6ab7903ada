"""A small index of four images with texts."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from diptych.data.header import Header
from diptych.index.backend import Content, text_hash
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.writer import Writer
from diptych.index.vectors import encode, encode_set

DAY = 86400 * 10**9
SPEC = IndexSpec("run", "i" * 64, 4, False, "float32", "/photos", "/photos", "0.1.0")
VECTORS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
IMAGES = {  # key: split, day of the file, day in the file, columns, texts
    "b.jpg": ("train", 100, None, {}, ["a dog", "a cat"]),
    "trip/a.jpg": ("test", 200, None, {"price": "5", "shop's": "x"}, ["a dog"]),
    "trip/sea/c.jpg": ("test", 300, "1971-01-02", {"price": "7"}, []),
    "trips/d.jpg": ("test", 400, None, {"price": "5"}, ["a mouse"]),
}


def fill(store, sets=False):
    """Add the images above with their texts."""
    writer = Writer(store, [])
    with store.database.transaction():
        texts = dict.fromkeys(text for *_, of_image in IMAGES.values() for text in of_image)
        for number, text in enumerate(texts):
            writer.add(Content("text", text_hash(text), encode(VECTORS[number : number + 1], "float32")[0]))
        for number, (key, (split, day, taken, columns, of_image)) in enumerate(IMAGES.items()):
            row = VECTORS[number : number + 1]
            encoded_set = encode_set(row) if sets else None
            vector = encode(row, "float32")[0]
            look = 2**64 - 1 - number
            header = Header(30, 20, taken)
            content = Content("image", bytes([number]), vector, encoded_set, look, header, b"jpeg %d" % number)
            stamp = (1, day * DAY + DAY // 2, None)
            writer.put_image(key, writer.add(content), stamp, ImageInfo(key, of_image, split, columns))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """An index file, which tests must not change."""
    store = Store.create(tmp_path_factory.mktemp("store") / "an.diptych", SPEC)
    fill(store)
    store.close()
    return store.path


@pytest.fixture(scope="module")
def store(file):
    """The index, open for reading."""
    store = Store.open(file)
    yield store
    store.close()


@pytest.fixture
def copy(file, tmp_path):
    """A copy of the index, open for writing."""
    store = Store.open(shutil.copy(file, tmp_path), write=True)
    yield store
    store.close()


@pytest.fixture(scope="session")
def example():
    """What the index was made from."""
    return SimpleNamespace(SPEC=SPEC, VECTORS=VECTORS, IMAGES=IMAGES, fill=fill)
