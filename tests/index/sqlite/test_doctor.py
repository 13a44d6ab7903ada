"""A sound index has no fault; each kind of damage is one line that names what is damaged."""

import shutil
import sqlite3

import numpy as np
import pytest
from PIL import Image

from diptych.data.header import Header
from diptych.errors import IndexFileError
from diptych.index.backend import Content, text_hash
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.doctor import examine
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.writer import Writer
from diptych.index.thumbnails import difference_hash, thumbnail
from diptych.index.vectors import checksum, encode


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    spec = IndexSpec("run", "i" * 64, 4, False, "float16", "/photos", "/photos", "0.1.0")
    store = Store.create(tmp_path_factory.mktemp("doctor") / "sound.diptych", spec)
    writer = Writer(store, [])
    vectors = encode(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), "float16")
    with store.database.transaction():
        writer.add(Content("text", text_hash("a dog"), vectors[5]))
        for number in range(5):
            photo = Image.new("RGB", (400, 300), (50 * number, 9, 9))
            small = thumbnail(photo)
            look, header = difference_hash(photo), Header(400, 300)
            content = Content("image", bytes([number]), vectors[number], None, look, header, small)
            writer.put_image(f"{number}.jpg", writer.add(content), (1, 1, None), ImageInfo(f"{number}.jpg", ["a dog"]))
    store.close()
    return store.path


@pytest.fixture
def index(sound, tmp_path):
    return shutil.copy(sound, tmp_path / "an.diptych")


def change(index, statement, *values):
    connection = sqlite3.connect(index, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def test_a_sound_index_has_no_fault(index):
    assert list(examine(index)) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "UPDATE contents SET vector = x'0000000000000000' WHERE id = 3",
            "1.jpg: its vector does not match its checksum",
        ),
        ("UPDATE contents SET checksum = checksum + 1 WHERE id = 1", "0.jpg#0: its vector does not match its checksum"),
        (
            "UPDATE thumbnails SET jpeg = substr(jpeg, 1, 300) WHERE content = 2",
            "0.jpg: its thumbnail cannot be decoded",
        ),
        ("DELETE FROM thumbnails WHERE content = 2", "0.jpg: the image has no thumbnail"),
        ("DELETE FROM contents WHERE id = 4", "2.jpg: the entry has no content"),
        ("UPDATE entries SET image = 99 WHERE key = '3.jpg#0'", "3.jpg#0: the text has no image"),
        ("UPDATE entries SET content = 1 WHERE key = '3.jpg'", "3.jpg: the entry has a content of another kind"),
    ],
    ids=["vector", "checksum", "thumbnail", "no-thumbnail", "no-content", "no-image", "kind"],
)
def test_each_fault_is_named(index, statement, expected):
    change(index, statement)
    faults = list(examine(index))
    assert faults
    assert faults[0].startswith(expected)
    assert all("\n" not in fault for fault in faults)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [(np.float16("nan") * np.ones(4, np.float16), "is not finite"), (np.ones(3, np.float16), "not have the 8 bytes")],
    ids=["nan", "short"],
)
def test_a_wrong_vector_with_the_right_checksum_is_found(index, vector, expected):
    content = vector.tobytes()
    change(index, "UPDATE contents SET vector = ?, checksum = ? WHERE id = 2", content, checksum(content, None))
    (fault,) = examine(index)
    assert fault.startswith("0.jpg: ")
    assert expected in fault


def test_a_damaged_file_is_a_fault_and_a_missing_one_an_error(index, tmp_path):
    content = bytearray(index.read_bytes())
    index.write_bytes(content[: len(content) // 2])
    (fault,) = examine(index)
    assert "damaged" in fault
    assert f"diptych index rebuild {index}" in fault
    for place in range(2 * 16384, len(content), 64):
        content[place : place + 8] = b"\xff" * 8
    index.write_bytes(content)
    assert list(examine(index))
    with pytest.raises(IndexFileError, match="no such index"):
        list(examine(tmp_path / "gone"))
