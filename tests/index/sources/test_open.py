import pytest

from diptych.data.corpus import Corpus
from diptych.errors import DataError
from diptych.index.sources.open import open_source, source_name


@pytest.mark.parametrize(
    ("address", "name"),
    [("scenes:test=3", "scenes"), ("/a/shop.csv", "shop"), ("/a/b#val", "b"), ("/a/b/../c.csv", "c"), ("/", "index")],
)
def test_the_default_name_of_an_index(address, name):
    assert source_name(address) == name


def test_a_corpus_in_memory_cannot_be_indexed():
    with pytest.raises(DataError, match=r"mine: an index is made of data at an address.*write the images to a folder"):
        open_source(Corpus.from_pairs([b""], ["a"], name="mine"))


@pytest.mark.parametrize("name", ["a.JPG", "a.heic", "a.nef", "a.mp4"])
def test_a_single_photo_is_not_a_source(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"{name}: one photo or video; name the folder that it is in$"):
        open_source(str(tmp_path / name))
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="no such file or folder"):
        open_source(str(tmp_path / "train" / name))
