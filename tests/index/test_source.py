import os

import pytest
from PIL import Image

from diptych.data.corpus import Corpus
from diptych.errors import DataError
from diptych.index.source import CorpusSource, FolderSource, open_source, source_name


def draw(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)
    return path


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
    assert listing.problems == {"\\udcff.jpg": "its name is not valid UTF-8; rename it"}


def test_a_folder_with_a_table_is_a_corpus(tmp_path):
    draw(tmp_path / "images/a.png")
    (tmp_path / "captions.csv").write_text("image,text,year\na.png,a dog,1999\n")
    source = open_source(str(tmp_path))
    assert isinstance(source, CorpusSource)
    assert list(source.listing().files) == ["a.png"]
    info = source.info("a.png")
    assert (info.texts, dict(info.columns)) == (["a dog"], {"year": "1999"})
    assert source.root == str(tmp_path / "images")
    before = source.listing().files["a.png"]
    (tmp_path / "captions.csv").write_text("image,text,year\na.png,a cat,1999\n")
    after = open_source(str(tmp_path)).listing().files["a.png"]
    assert (before[:2] == after[:2], before[2] == after[2]) == (True, False)


def test_a_table_whose_images_are_elsewhere_keeps_its_columns(tmp_path):
    draw(tmp_path / "photos/a.jpg")
    (tmp_path / "t.csv").write_text("image,text,year\na.jpg,a dog,1999\n")
    source = open_source(f"{tmp_path}/t.csv#{tmp_path}/photos")
    info = source.info("a.jpg")
    assert (info.path, info.texts, dict(info.columns)) == ("a.jpg", ["a dog"], {"year": "1999"})


def test_a_missing_folder_changes_nothing(tmp_path):
    source = FolderSource(tmp_path / "photos")
    with pytest.raises(DataError, match=r"cannot be read .* is its disk connected\? Nothing was changed"):
        source.listing()


@pytest.mark.parametrize(
    ("address", "name"), [("scenes:test=3", "scenes"), ("/a/shop.csv", "shop"), ("/a/b#val", "b"), ("/", "index")]
)
def test_the_default_name_of_an_index(address, name):
    assert source_name(address) == name


def test_a_corpus_in_memory_cannot_be_indexed():
    with pytest.raises(DataError, match=r"mine: an index is made of data at an address.*write the images to a folder"):
        open_source(Corpus.from_pairs([b""], ["a"], name="mine"))
