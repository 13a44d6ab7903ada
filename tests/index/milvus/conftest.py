"""An index of four images with texts in a real Milvus, for tests that only read it, and one to change."""

import hashlib
import uuid
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from diptych.data.header import Header
from diptych.index.backend import Content, locate, text_hash
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.vectors import encode

DAY = 86400 * 10**9
SPEC = IndexSpec("run", "i" * 64, 4, False, "float32", "/photos", "/photos", "0.1.0")
IMAGES = {  # key: split, day of the file, day in the file, columns, texts
    "b.jpg": ("train", 100, None, {}, ["a dog", "a cat"]),
    "trip/a.jpg": ("test", 200, None, {"price": "5", "sh\"op's": 'x\\"\n'}, ["a dog"]),
    "trip/sea_%/c.jpg": ("test", 300, "1971-01-02", {"price": "7"}, []),
    "trips/d.jpg": ("test", 400, None, {"price": "5"}, ["a mouse 😀"]),
}


def digest(name):
    return hashlib.sha256(name.encode()).digest()


def vector(name):
    """A vector of length one for a name."""
    found = np.frombuffer(digest(name), np.uint8)[:4].astype(np.float32) + 1
    return found / np.linalg.norm(found)


def content(kind, name, **options):
    """A content to add."""
    of_name = text_hash(name) if kind == "text" else digest(name)
    return Content(kind, of_name, encode(vector(name)[None], "float32")[0], **options)


def put(writer, key, name, *, texts=(), stamp=(1, DAY, None), **about):
    """Put an image whose content has this name, and its texts, within a transaction."""
    for text in texts:
        if writer.content("text", text_hash(text)) is None:
            writer.add(content("text", text))
    number = writer.content("image", digest(name))
    if number is None:
        look = 2**64 - 1 - len(name)
        number = writer.add(content("image", name, look=look, header=Header(30, 20, about.pop("taken", None))))
    about.pop("taken", None)
    writer.put_image(key, number, stamp, ImageInfo(key, texts, **about))


def fill(store):
    """Add the images above with their texts."""
    writer = store.writer([])
    with writer.transaction():
        for key, (split, day, taken, columns, texts) in IMAGES.items():
            stamp = (1, day * DAY + DAY // 2, None)
            put(writer, key, key, texts=texts, stamp=stamp, split=split, columns=columns, taken=taken)
    with writer.transaction():
        writer.finish({}, ())
    writer.set_synced("now", {})


@pytest.fixture(scope="session")
def milvus_store(milvus_port):
    """The index, open for reading, which tests must not change."""
    place = locate(f"milvus://127.0.0.1:{milvus_port}/m{uuid.uuid4().hex[:12]}?index=FLAT")
    with closing(place.create(SPEC)) as store:
        fill(store)
    with closing(place.open()) as store:
        yield store
    place.remove()


@pytest.fixture(scope="session")
def to_change(milvus_port):
    """An index open for writing; making one takes seconds."""
    place = locate(f"milvus://127.0.0.1:{milvus_port}/c{uuid.uuid4().hex[:12]}?index=FLAT")
    with closing(place.create(SPEC)) as store:
        yield store
    place.remove()


@pytest.fixture
def milvus_copy(to_change):
    """The same index, open for writing."""
    for partition in ("image", "text", "about"):
        kept = " and ".join(f"key != '{name}#0'" for name in ("making", "options", "generation"))
        to_change.client.call("delete", to_change.collection, filter=f"id > 0 and {kept}", partition_name=partition)
    to_change.changed()
    to_change.forget()
    fill(to_change)
    return to_change


@pytest.fixture(scope="session")
def four():
    """What the index was made from."""
    return SimpleNamespace(
        SPEC=SPEC, IMAGES=IMAGES, vector=vector, content=content, digest=digest, put=put, fill=fill, DAY=DAY
    )
