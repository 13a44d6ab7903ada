"""A corpus from Python objects follows the rules of a table on disk."""

import csv
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.data.check import check
from diptych.data.corpus import Corpus
from diptych.data.from_python import ColumnNames
from diptych.data.images import PictureFile
from diptych.data.open import open_corpus
from diptych.data.splitting import SplitRule
from diptych.errors import DataError


def photo(red=0):
    return Image.new("RGB", (4, 3), (red, 0, 0))


def same(one, other):
    """Whether two corpora are the same but for name and address."""
    assert [str(name) for name in one.image_ids] == list(other.image_ids)
    assert list(one.texts) == list(other.texts)
    assert one.pictures == other.pictures
    assert one.split_origin == other.split_origin
    return one.digest() == other.digest()


def texts_of(corpus):
    return {
        name: [text for text, other in zip(corpus.texts, corpus.text_groups, strict=True) if other == group]
        for name, group in zip(corpus.image_ids, corpus.image_groups, strict=True)
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of empty files that are named like images."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(12):
        (root / f"{number}.jpg").touch()
    return root


ROWS = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from(["a dog", "two  dogs", "a cat", "grass"]), st.integers(0, 2)),
    min_size=1,
    max_size=30,
    unique=True,
)


@settings(max_examples=60)
@given(ROWS, st.booleans(), st.booleans())
def test_pairs_make_the_corpus_that_a_table_makes(folder, rows, has_group, has_split):
    rows = [{"image": f"{image}.jpg", "text": text, "group": f"g{image % 5}"} for image, text, _ in rows]
    rows = [{**row, "split": ("train", "dev", "Test")[int(row["image"][:-4]) % 5 % 3]} for row in rows]
    kept = ["image", "text", *["group"] * has_group, *["split"] * has_split]
    rows = list({(row["image"], row["text"]): {key: row[key] for key in kept} for row in rows}.values())
    with (folder / "t.csv").open("w") as file:
        table = csv.DictWriter(file, kept)
        table.writeheader()
        table.writerows(rows)
    expected = open_corpus(folder / "t.csv")
    assert not expected.problems
    columns = {key: [row[key] for row in rows] for key in kept}
    pairs = Corpus.from_pairs(
        columns["image"], columns["text"], columns.get("split"), groups=columns.get("group"), folder=folder
    )
    assert same(pairs, expected)
    assert same(Corpus.from_dataframe(columns, folder=folder), expected)
    assert same(Corpus.from_dataframe(pd.DataFrame(rows), folder=folder), expected)
    assert same(Corpus.from_records(rows, folder=folder), expected)
    assert same(Corpus.from_records((SimpleNamespace(**row) for row in rows), folder=folder), expected)


def test_the_same_object_is_one_image_with_several_texts():
    first, second = photo(1), photo(2)
    corpus = Corpus.from_pairs([first, second, first, photo(1)], ["a", ["b", "c"], "d", "e"], "test", name="mine")
    assert corpus.name == "mine"
    assert texts_of(corpus) == {"000000": ["a", "d"], "000001": ["b", "c"], "000003": ["e"]}
    assert [picture.load().getpixel((0, 0))[0] for picture in corpus.pictures] == [1, 2, 1]
    assert corpus.split_sizes() == {"test": 3}
    assert corpus.split_origin == "source"
    assert (corpus.address, corpus.problems) == (None, ())


def test_arrays_in_one_array_are_images_of_their_own():
    corpus = Corpus.from_pairs(np.zeros((3, 5, 4, 3), np.uint8), np.array(["a", "b", "c"]))
    assert corpus.image_ids == ("000000", "000001", "000002")
    assert corpus.pictures[2].load().size == (4, 5)
    assert corpus.split_origin == "default"
    assert corpus.with_splits(val=0.3, test=0.3).split_sizes() == {"train": 1, "val": 1, "test": 1}


def test_paths_are_found_from_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    corpus = Corpus.from_pairs(["./0.jpg", folder / "1.jpg", "0.jpg"], ["a", "b", "c"])
    assert texts_of(corpus) == {"0.jpg": ["a", "c"], f"{folder}/1.jpg": ["b"]}
    monkeypatch.chdir("/")
    assert corpus.pictures == (PictureFile(folder / "0.jpg"), PictureFile(folder / "1.jpg"))


def test_ids_and_groups():
    images = [photo(number) for number in range(5)]
    corpus = Corpus.from_pairs(images, "abcde"[:5].split() * 5, groups=[1, "1", np.int64(2), None, float("nan")])
    assert corpus.image_groups.tolist() == [0, 0, 1, 2, 3]
    named = Corpus.from_pairs(images, list("abcde"), ids=["x", 7, "x", "y", 7])
    assert texts_of(named) == {"x": ["a", "c"], "7": ["b", "e"], "y": ["d"]}
    assert [picture.load().getpixel((0, 0))[0] for picture in named.pictures] == [0, 1, 3]


def test_a_repeated_pair_counts_once():
    image = photo()
    assert Corpus.from_pairs([image, image, photo()], ["a", " a ", ["a", "a"]]).texts == ("a", "a")


def test_precomputed_features():
    values = np.arange(8, dtype=np.float64).reshape(4, 2)
    values[2] = values[0]
    corpus = Corpus.from_pairs(None, list("abcd"), "train", ids=["x", "y", "x", "z"], features=values)
    assert corpus.pictures is None
    np.testing.assert_array_equal(corpus.features[np.arange(3)], values[[0, 1, 3]])
    assert Corpus.from_pairs(None, list("abcd"), features=values).image_ids == ("000000", "000001", "000002", "000003")
    both = Corpus.from_pairs([photo()] * 2, ["a", "b"], features=np.zeros((2, 3, 5), np.float32))
    assert (len(both.pictures), both.features.shape) == (1, (3, 5))


def test_records_of_every_kind():
    @dataclass
    class Pair:
        img: Image.Image
        caption: list[str]

    Named = namedtuple("Named", "caption img")
    images = [photo(number) for number in range(3)]
    records = [Pair(images[0], ["a"]), Named("b", images[1]), {"img": images[2], "caption": "c", "more": 1}]
    corpus = Corpus.from_records(iter(records), image="img", text="caption")
    assert texts_of(corpus) == {"000000": ["a"], "000001": ["b"], "000002": ["c"]}
    tuples = Corpus.from_records([(images[0], "a", "train"), [images[1], "b", "validation"]])
    assert tuples.image_splits.tolist() == ["train", "val"]
    assert Corpus.from_records(zip(images, "abc", strict=True)).texts == ("a", "b", "c")


def test_a_frame_with_names_of_its_own():
    frame = pd.DataFrame({"photo": ["a.jpg", "a.jpg"], "sentence": ["one", "two"], "fold": ["train", "train"]})
    frame = frame.set_index(pd.Index(["p", "q"]))
    frame["person"] = [3, 3]
    with pytest.raises(DataError, match=r"row 0 \(counted from 0\): no image 'a.jpg' in "):
        Corpus.from_dataframe(frame, "photo", "sentence", split="fold", group="person")
    frame["photo"] = [photo(), photo()]
    corpus = Corpus.from_dataframe(frame, "photo", "sentence", split="fold", group="person", name="mine")
    assert (corpus.name, corpus.split_sizes(), corpus.image_groups.tolist()) == ("mine", {"train": 2}, [0, 0])


class Polars:
    """The part of polars' interface that is used."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return SimpleNamespace(to_list=lambda: list(self._columns[name]))


def test_other_data_frames():
    assert Corpus.from_dataframe(Polars({"image": [photo()], "text": ["a"]})).texts == ("a",)
    assert Corpus.from_dataframe({"image": (photo(),), "text": np.array(["a"])}).texts == ("a",)


def refusal(*arguments, make=Corpus.from_pairs, **options):
    with pytest.raises(DataError) as caught:
        make(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ROW = "pairs, row 1 (counted from 0): "


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["a"], {}, "pairs: 2 images, but 1 texts; give one per pair"),
        (["a", "b"], {"splits": ["train"]}, "pairs: 1 splits, but 2 texts"),
        (["a", "b"], {"groups": [1, 2, 3]}, "pairs: 3 groups, but 2 texts"),
        (["a", "b"], {"ids": [1]}, "pairs: 1 ids, but 2 texts"),
        (["a", "b"], {"features": np.zeros((3, 2))}, "pairs: 3 rows of features, but 2 texts"),
        (["a", "b"], {"features": np.zeros((2, 2), int)}, "pairs: features are int64 of shape (2, 2); they must be"),
        (["a", "b"], {"features": np.zeros(2)}, "pairs: features are float64 of shape (2,)"),
        ("ab", {}, "texts is of type str; give a list"),
        (7, {}, "texts is of type int; give a list"),
        (["a", None], {}, ROW + "no text"),
        (["a", float("nan")], {}, ROW + "no text"),
        (["a", pd.NA], {}, ROW + "no text"),
        (["a", 7], {}, ROW + "the text is of type int, not a string"),
        (["a", b"b"], {}, ROW + "the text is of type bytes, not a string"),
        (["a", " "], {}, ROW + "the text is empty"),
        (["a", []], {}, ROW + "no text"),
        (["a", ["b", None]], {}, ROW + "no text"),
        (["a", "b"], {"splits": ["train", "tset"]}, ROW + "unknown split 'tset'; did you mean 'test'?"),
        (["a", "b"], {"splits": "all"}, "pairs, row 0 (counted from 0): unknown split 'all'"),
        (["a", "b"], {"splits": ["train", None]}, ROW + "no split"),
        (["a", "b"], {"groups": [1, 1.5]}, ROW + "the group is of type float, not a string"),
        (["a", "b"], {"ids": ["x", ""]}, ROW + "the id is empty"),
        (["a", "b"], {"ids": ["x", "x"], "splits": ["train", "val"]}, ROW + "image 'x' is in another split at row 0"),
        (["a", "b"], {"ids": ["x", "x"], "groups": [1, 2]}, ROW + "image 'x' is in another group at row 0"),
        (["a", "b"], {"ids": ["x", "x"], "features": np.eye(2)}, ROW + "image 'x' has other features at row 0"),
        (["a", "b"], {"folder": "/no/such"}, "/no/such: no such folder of images"),
        (["a", "b"], {"errors": "skipp"}, "errors = 'skipp'; did you mean 'skip'?"),
    ],
)
def test_bad_pairs(texts, options, message):
    assert refusal([photo(), photo()], texts, **options).startswith(message)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("missing.jpg", "no image 'missing.jpg' in "),
        ("", "the image is empty"),
        ("https://example.com/a.jpg", "'https://example.com/a.jpg' is a URL, and Diptych never downloads"),
        (None, "no image"),
        (np.zeros((3, 4)), "the image is an array of float64"),
    ],
)
def test_bad_images(image, message):
    assert refusal([photo(), image], ["a", "b"]).startswith(ROW + message)


def test_empty_input():
    assert refusal([], []).startswith("pairs: no pairs in it")
    assert refusal(None, ["a"]) == "pairs: neither images nor features; give one of them"
    assert refusal([], make=Corpus.from_records).startswith("records: no records in it")
    assert refusal({"image": [], "text": []}, make=Corpus.from_dataframe).startswith("dataframe: no pairs in it")


def test_columns_that_are_not_there():
    frame = pd.DataFrame({"imgae": ["a.jpg"], "caption": ["a"], 3: [1]})
    make = Corpus.from_dataframe
    assert refusal(frame, make=make) == "dataframe: no column 'image'; did you mean 'imgae'?"
    assert refusal(frame, "imgae", make=make) == "dataframe: no column 'text'; known: 3, caption, imgae"
    assert "no column 'splt'" in refusal(frame, "imgae", "caption", split="splt", make=make)
    assert "of type list; give a data frame or a dict of columns" in refusal([1], make=make)
    records = [{"img": photo(), "text": "a"}]
    assert refusal(records, make=Corpus.from_records) == "records: no column 'image'; did you mean 'img'?"
    assert ColumnNames("image", "text").checked("x", ["text", "image", "group"]).named() == ["text", "group"]


def test_records_that_are_none():
    make = Corpus.from_records
    good = (photo(), "a")
    assert refusal([good, 7], make=make).startswith("records, row 1: of type int; give a dict, a dataclass")
    assert refusal([good, (photo(),)], make=make).startswith("records, row 1: 1 values; give (image, text)")
    assert refusal([good, (photo(), "a", "train", 1)], make=make).startswith("records, row 1: 4 values")
    partly = [{"image": photo(), "text": "a"}, {"image": photo()}]
    assert refusal(partly, make=make) == "records, row 1 (counted from 0): no text"


def test_bad_rows_may_be_skipped_and_no_other_row_moves():
    images = [photo(number) for number in range(4)]
    corpus = Corpus.from_pairs(images, ["a", None, "c", ["d", 7]], name="mine", errors="skip")
    assert texts_of(corpus) == {"000000": ["a"], "000002": ["c"]}
    assert [picture.load().getpixel((0, 0))[0] for picture in corpus.pictures] == [0, 2]
    assert [str(problem) for problem in corpus.problems] == [
        "mine:1: no text",
        "mine:3: the text is of type int, not a string",
    ]
    message = refusal(images[:1], [None], errors="skip")
    assert message == "pairs: no usable image in it; first problem: pairs:0: no text"


def test_the_check_names_a_picture_once():
    corpus = Corpus.from_pairs([b"broken", photo()], ["a", "b"], "train")
    (problem,) = check(corpus).problems
    assert str(problem).startswith("000000: not an image in a known format")


PROGRAM = """
from PIL import Image
from diptych.data.corpus import Corpus
images = [Image.new("RGB", (4, 3), (number, 0, 0)) for number in range(20)]
print(Corpus.from_pairs(images, [f"photo {n}" for n in range(20)]).with_splits(val=0.2, test=0.2).digest())
"""


def test_the_digest_is_the_same_in_every_process():
    images = [photo(number) for number in range(20)]
    texts = [f"photo {number}" for number in range(20)]
    corpus = Corpus.from_pairs(images, texts).with_splits(val=0.2, test=0.2)
    assert corpus.split_origin == SplitRule(0.2, 0.2)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == corpus.digest()
    assert replace(corpus, name="other").digest() == corpus.digest()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_features_that_are_not_finite_are_refused(value):
    features = np.ones((3, 2, 4), np.float32)
    features[1, 1, 2] = value
    with pytest.raises(DataError, match=r"^pairs, row 1 \(counted from 0\): its features have a NaN or an infinite"):
        Corpus.from_pairs(None, ["a", "b", "c"], features=features)
