"""Thumbnails are files beside Milvus, objects of a store, or made from the original."""

import io

import pytest
from PIL import Image

from diptych.errors import DiptychError, IndexFileError
from diptych.index.milvus.thumbnails import FolderThumbnails, from_original, thumbnail_store


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
def test_what_is_put_is_there_until_it_is_removed(tmp_path, scheme):
    if scheme:
        pytest.importorskip("fsspec")
    store = thumbnail_store(f"{scheme}{tmp_path / 'small'}")
    store.put("abcd", b"one")
    store.put("abcd", b"two")
    assert (store.get("abcd"), store.get("ffff")) == (b"two", None)
    store.remove("abcd")
    store.remove("abcd")
    assert store.get("abcd") is None


def test_a_place_that_cannot_be_used(tmp_path):
    assert thumbnail_store(None) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexFileError, match="file: thumbnails cannot be written"):
        FolderThumbnails(tmp_path / "file").put("abcd", b"")
    pytest.importorskip("fsspec")
    with pytest.raises(DiptychError, match="thumbnails=nosuch://x: cannot be used"):
        thumbnail_store("nosuch://x")


def test_a_thumbnail_is_made_from_the_original(tmp_path):
    Image.new("RGB", (800, 400), "red").save(tmp_path / "a.png")
    jpeg = from_original(str(tmp_path / "a.png"), None)
    with Image.open(io.BytesIO(jpeg)) as small:
        assert (small.format, small.size) == ("JPEG", (320, 160))
    assert from_original(str(tmp_path / "none.png"), None) is None
    (tmp_path / "b.png").write_bytes(b"no picture")
    assert from_original(str(tmp_path / "b.png"), None) is None
