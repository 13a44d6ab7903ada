import os

import pytest

from diptych.errors import DataError
from diptych.index.sources.folder import FolderSource
from diptych.index.sources.open import open_source
from support.photos import draw


def test_a_folder_lists_images_at_any_depth(tmp_path):
    for name in ("a.jpg", "sub/b.PNG", "sub/deep/c.webp", ".hidden/d.jpg", "sub/.e.jpg"):
        draw(tmp_path / name) if not name.endswith("PNG") else draw(tmp_path / "sub/b.png").rename(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not the text of an image")
    (tmp_path / "a.txt").write_text("a dog\n\na dog\n a  cat \n")
    source = open_source(str(tmp_path))
    assert isinstance(source, FolderSource)
    listing = source.listing()
    assert set(listing.files) == {"a.jpg", "sub/b.PNG", "sub/deep/c.webp"}
    assert listing.text_files == {"a.txt"}
    status = (tmp_path / "a.jpg").stat()
    size, modified, details = listing.files["a.jpg"]
    assert (size, modified) == (status.st_size, status.st_mtime_ns)
    assert details is not None  # changes with the file of its texts
    assert listing.files["sub/b.PNG"][2] is None
    info = source.info("a.jpg")
    assert (info.path, info.texts, info.text_file) == ("a.jpg", ["a dog", "a cat"], "a.txt")
    assert source.picture("a.jpg").load().size == (4, 4)


def test_a_text_that_is_not_utf8_is_a_problem_of_its_file(tmp_path):
    draw(tmp_path / "a.jpg")
    (tmp_path / "a.txt").write_bytes(b"a dog\n\xff\n")
    source = FolderSource(tmp_path)
    source.listing()
    info = source.info("a.jpg")
    assert info.texts == ["a dog"]
    assert info.problems["a.txt"].startswith("row 2: ")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_name_that_is_not_utf8_is_reported(tmp_path):
    draw(tmp_path / "a.jpg")
    os.rename(bytes(tmp_path / "a.jpg"), bytes(tmp_path) + b"/\xff.jpg")  # noqa: PTH104
    listing = FolderSource(tmp_path).listing()
    assert listing.files == {}
    assert listing.problems == {"\\xff.jpg": "its name is not valid UTF-8; rename it"}


def test_a_missing_folder_changes_nothing(tmp_path):
    source = FolderSource(tmp_path / "photos")
    with pytest.raises(DataError, match=r"cannot be read .* is its disk connected\? Nothing was changed"):
        source.listing()
