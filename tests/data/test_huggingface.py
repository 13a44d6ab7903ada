"""Datasets of Hugging Face, read with the real library."""

import json
import subprocess
import sys

import datasets
import numpy as np
import pytest
from PIL import Image

from diptych.data import huggingface
from diptych.data.corpus import Corpus
from diptych.data.from_python import ColumnNames
from diptych.data.huggingface import corpus_from_huggingface
from diptych.errors import DataError, ImageError

FEATURES = datasets.Features({"image": datasets.Image(), "caption": datasets.List(datasets.Value("string"))})


def photo(red):
    return Image.new("RGB", (5, 4), (red, 0, 0))


def dataset(count, first=0, **columns):
    numbers = range(first, first + count)
    rows = {"image": [photo(n) for n in numbers], "caption": [[f"photo {n}", f"number {n}"] for n in numbers]}
    if not columns:
        return datasets.Dataset.from_dict(rows, features=FEATURES)
    return datasets.Dataset.from_dict({**rows, **columns}).cast_column("image", datasets.Image())


def reds(corpus):
    return [picture.load().getpixel((0, 0))[0] for picture in corpus.pictures]


def test_a_single_dataset_has_no_splits():
    corpus = Corpus.from_huggingface(dataset(10, first=50))
    assert corpus.image_ids == tuple(f"{row:06d}" for row in range(10))
    assert list(corpus.texts[:3]) == ["photo 50", "number 50", "photo 51"]
    assert np.bincount(corpus.text_groups).tolist() == [2] * 10
    assert reds(corpus) == list(range(50, 60))
    assert (corpus.name, corpus.split_origin) == ("dataset", "default")
    assert corpus.with_splits(val=0.2, test=0.2).split_sizes() == {"train": 6, "val": 2, "test": 2}
    # Most uploaded datasets are a dict of one dataset, which says no more.
    alone = Corpus.from_huggingface(datasets.DatasetDict(train=dataset(10, first=50)))
    assert alone.digest() == corpus.digest()


def test_the_datasets_of_a_dict_are_splits():
    parts = datasets.DatasetDict(train=dataset(3), validation=dataset(2, 100), test=dataset(1, 200))
    corpus = Corpus.from_huggingface(parts, name="mine")
    assert corpus.split_sizes() == {"train": 3, "val": 2, "test": 1}
    assert corpus.image_ids[2:4] == ("train/000002", "validation/000000")
    assert reds(corpus) == [0, 1, 2, 100, 101, 200]
    assert reds(corpus.split("val")) == [100, 101]
    assert (corpus.name, corpus.split_origin) == ("mine", "source")


def test_columns_of_splits_groups_and_ids():
    columns = {
        "caption": ["a", "b", "c"],
        "fold": ["train", "train", "test"],
        "group": [1, 1, 2],
        "image_id": [7, 7, 8],
    }
    corpus = Corpus.from_huggingface(dataset(3, **columns), split="fold", id="image_id")
    assert corpus.image_ids == ("7", "8")
    assert corpus.text_groups.tolist() == [0, 0, 1]
    assert corpus.split_sizes() == {"train": 1, "test": 1}
    assert reds(corpus) == [0, 2]
    # A column that is named is used for all datasets of a dict, whatever these are called.
    parts = {"a": dataset(3, **columns), "b": dataset(3, **columns)}
    named = Corpus.from_huggingface(parts, split="fold", id="image_id")
    assert (named.image_ids, named.split_sizes()) == (("a/7", "a/8", "b/7", "b/8"), {"train": 2, "test": 2})


def test_a_column_that_only_some_datasets_have():
    parts = {"train": dataset(2, caption=["a", "b"], group=[1, 1]), "test": dataset(1, 9, caption=["c"])}
    assert Corpus.from_huggingface(parts).image_groups.tolist() == [0, 0, 1]
    parts = {"test": dataset(1, 9, caption=["c"]), "train": dataset(2, caption=["a", "b"], group=[1, 1])}
    assert Corpus.from_huggingface(parts).image_groups.tolist() == [0, 1, 1]


def test_nothing_is_decoded_before_it_is_read(monkeypatch):
    decoded = []

    def decode(stored, name):
        decoded.append(name)
        return photo(1)

    monkeypatch.setattr(huggingface, "decode_stored", decode)
    broken = datasets.Dataset.from_dict({"image": [{"bytes": b"no image", "path": None}] * 3, "caption": list("abc")})
    broken = broken.cast_column("image", datasets.Image())
    corpus = Corpus.from_huggingface(broken).with_splits(val=0.3)
    corpus.digest()
    assert decoded == []
    corpus.pictures[1].load()
    assert decoded == ["000001"]


def test_images_are_decoded_as_files_are(tmp_path):
    tags = Image.Exif()
    tags[0x0112] = 6
    photo(3).save(tmp_path / "a.jpg", exif=tags)
    (tmp_path / "b.jpg").write_bytes(b"no image")
    paths = [str(tmp_path / "a.jpg"), str(tmp_path / "b.jpg"), None]
    some = datasets.Dataset.from_dict({"image": paths, "caption": list("abc")})
    corpus = Corpus.from_huggingface(some.cast_column("image", datasets.Image()), name="mine")
    assert corpus.pictures[0].load().size == (4, 5)
    with pytest.raises(ImageError, match=r"b\.jpg: not an image in a known format"):
        corpus.pictures[1].load()
    with pytest.raises(ImageError, match="000002: neither bytes nor a path"):
        corpus.pictures[2].load()
    # A column of plain strings holds paths, which are the ids of their images.
    strings = Corpus.from_huggingface(some.select([0, 0, 1]), name="mine")
    assert list(strings.image_ids) == paths[:2]
    assert strings.texts == ("a", "b")


@pytest.mark.parametrize("kind", ["torch", "numpy", None])
def test_formats_and_transforms_of_a_dataset_do_not_matter(kind):
    plain = dataset(3, 10)
    other = plain.with_format(kind) if kind else plain.with_transform(lambda rows: {"image": [0], "caption": ["x"]})
    corpus = Corpus.from_huggingface(other)
    assert corpus.digest() == Corpus.from_huggingface(plain).digest()
    assert reds(corpus) == [10, 11, 12]


def test_a_selection_keeps_its_rows():
    corpus = Corpus.from_huggingface(dataset(6, 20).shuffle(seed=1).select([4, 0]))
    assert [int(text.split()[1]) for text in corpus.texts[::2]] == reds(corpus)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dataset(1).rename_column("image", "img"), "dataset: no column 'image'; did you mean 'img'?"),
        ({"train": dataset(1), "test": dataset(1).remove_columns("caption")}, "dataset test: no column 'caption'"),
        ({"train": dataset(1), "extra": dataset(1)}, "dataset: a dataset called 'extra', which is not a split"),
        ({}, "dataset: an empty dict of datasets"),
        ([1], "dataset: of type list; give a Dataset or a DatasetDict"),
        ({"image": [1], "caption": [2]}, "dataset: of type list; give a Dataset"),
        (dataset(1).to_iterable_dataset(), "dataset: a streamed dataset has no length; load it without streaming=True"),
        (dataset(2, caption=["a", None]), "dataset, row 1 (counted from 0): no text"),
        (dataset(2, caption=["a", "b"], split=["train", "x"]), "dataset, row 1 (counted from 0): unknown split 'x'"),
        (dataset(2).select([]), "dataset: no pairs in it"),
    ],
)
def test_bad_datasets(given, message):
    with pytest.raises(DataError) as caught:
        Corpus.from_huggingface(given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_bad_rows_may_be_skipped():
    columns = ColumnNames("image", "caption")
    corpus = corpus_from_huggingface(dataset(3, caption=["a", None, "c"]), columns, "mine", "skip")
    assert corpus.image_ids == ("000000", "000002")
    assert reds(corpus) == [0, 2]
    assert [str(problem) for problem in corpus.problems] == ["mine:1: no text"]


def test_the_library_is_not_needed_by_others():
    program = "import sys, diptych.data.huggingface; import json; print(json.dumps('datasets' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False
