from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats.karpathy import read
from diptych.data.images import PictureFile
from diptych.errors import DataError


def entry(name: str, split: str, *texts: Any, **more: Any) -> dict[str, Any]:
    return {"filename": name, "split": split, "sentences": [{"raw": text, "tokens": []} for text in texts], **more}


def dataset(folder: Path, *entries: Any, images: tuple[str, ...] = ()) -> Path:
    for name in images:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    file = folder / "dataset_own.json"
    file.write_text(json.dumps({"images": entries, "dataset": "own"}), encoding="utf-8")
    return file


def texts_of(corpus: Corpus) -> dict[str, list[str]]:
    return {
        name: [text for text, other in zip(corpus.texts, corpus.text_groups, strict=True) if other == group]
        for name, group in zip(corpus.image_ids, corpus.image_groups, strict=True)
    }


def test_any_number_of_texts_and_every_split(tmp_path: Path) -> None:
    file = dataset(
        tmp_path,
        entry("a.jpg", "train", "a dog .", "two  dogs\n"),
        entry("b.jpg", "val", "a cat"),
        entry("c.jpg", "test", "x", "y", "z"),
        entry("d.jpg", "restval", "same", "same"),
        images=("images/a.jpg", "images/b.jpg", "images/c.jpg", "images/d.jpg"),
    )
    corpus = read(Address(file))
    assert texts_of(corpus) == {
        "a.jpg": ["a dog .", "two dogs"],
        "b.jpg": ["a cat"],
        "c.jpg": ["x", "y", "z"],
        "d.jpg": ["same", "same"],
    }
    assert corpus.image_splits.tolist() == ["train", "val", "test", "restval"]
    assert corpus.split("test").texts == ["x", "y", "z"]
    assert corpus.pictures is not None
    assert corpus.pictures[2] == PictureFile(tmp_path / "images/c.jpg")
    assert (corpus.name, corpus.problems) == ("dataset_own", ())


def test_sentence_ids_are_those_of_their_texts(tmp_path: Path) -> None:
    first, second = entry("a.jpg", "train", "one", " ", "two"), entry("b.jpg", "test", "three")
    for sentence, identity in zip([*first["sentences"], *second["sentences"]], (770337, 1, 2, 38), strict=True):
        sentence["sentid"] = identity
    corpus = read(Address(dataset(tmp_path, first, second, images=("a.jpg", "b.jpg"))))
    assert (corpus.texts, corpus.text_ids) == (("one", "two", "three"), ("770337", "2", "38"))
    del second["sentences"][0]["sentid"]
    assert read(Address(dataset(tmp_path, first, second))).text_ids is None


def test_images_beside_the_file_in_folders_of_coco_or_elsewhere(tmp_path: Path) -> None:
    a, b = entry("a.jpg", "train", "a", filepath="val2014"), entry("b.jpg", "train", "b")
    for number, places in enumerate(
        (
            ("images/val2014/a.jpg", "images/b.jpg"),
            ("val2014/a.jpg", "b.jpg"),
            ("images/a.jpg", "b.jpg"),  # the folder of filepath is missing
        )
    ):
        folder = tmp_path / str(number)
        corpus = read(Address(dataset(folder, a, b, images=places)))
        assert corpus.pictures == tuple(PictureFile(folder / place) for place in places)
        assert texts_of(corpus) == {"val2014/a.jpg": ["a"], "b.jpg": ["b"]}
    elsewhere = read(Address(tmp_path / "0/dataset_own.json", str(tmp_path / "1")))
    assert elsewhere.pictures == (PictureFile(tmp_path / "1/val2014/a.jpg"), PictureFile(tmp_path / "1/b.jpg"))
    with pytest.raises(DataError, match="no such folder of images"):
        read(Address(tmp_path / "0/dataset_own.json", str(tmp_path / "gone")))


def test_broken_rows_are_named_and_left_out_and_no_neighbour_moves(tmp_path: Path) -> None:
    no_split = entry("c.jpg", "train", "no split")
    del no_split["split"]
    file = dataset(
        tmp_path,
        entry("a.jpg", "train", "first", imgid=0),
        entry("gone.jpg", "train", "missing", "missing", imgid=1),
        "nonsense",
        no_split,
        {"split": "train", "sentences": []},
        entry("c.jpg", "trian", "wrong split"),
        {"filename": "c.jpg", "split": "train"},
        entry("b.jpg", "test", "kept", "  ", None, 7, "kept too", imgid=2),
        entry("c.jpg", "train", "repeats an imgid", imgid=2),
        entry("a.jpg", "train", "repeats a name"),
        {"filename": "d.jpg", "split": "val", "sentences": ["no object", {"tokens": ["x"]}, {"raw": "last"}]},
        images=("a.jpg", "b.jpg", "c.jpg", "d.jpg"),
    )
    corpus = read(Address(file))
    assert texts_of(corpus) == {"a.jpg": ["first"], "b.jpg": ["kept", "kept too"], "d.jpg": ["last"]}
    assert corpus.image_splits.tolist() == ["train", "test", "val"]
    assert corpus.text_splits.tolist() == ["train", "test", "test", "val"]
    assert {problem.file for problem in corpus.problems} == {str(file)}
    assert [(problem.row, problem.message) for problem in corpus.problems] == [
        (2, f"no image 'gone.jpg' in {tmp_path}"),
        (3, "a str, not a JSON object"),
        (4, "no split"),
        (5, "no filename"),
        (6, "unknown split 'trian'; did you mean 'train'?"),
        (7, "no list 'sentences'"),
        (8, "sentence 2: the text is empty"),
        (8, "sentence 3: no text"),
        (8, "sentence 4: the text is of type int, not a string"),
        (9, f"imgid 2 is already at {file}:8"),
        (10, f"image 'a.jpg' is already at {file}:1"),
        (11, "sentence 1: a str, not a JSON object"),
        (11, "sentence 2: no text"),
    ]


def test_an_image_without_texts_stays_an_image(tmp_path: Path) -> None:
    file = dataset(tmp_path, entry("a.jpg", "train", "a"), entry("b.jpg", "train"), images=("a.jpg", "b.jpg"))
    corpus = read(Address(file))
    assert texts_of(corpus) == {"a.jpg": ["a"], "b.jpg": []}
    assert list(corpus.matched().image_ids) == ["a.jpg"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not valid JSON"),
        ('{"images": [', "not valid JSON"),
        ("[]", "no list 'images'"),
        ('{"images": {}}', "no list 'images'"),
        ('{"images": []}', "no usable image in it"),
        ('{"images": [{"filename": "a.jpg"}]}', r"no usable image in it; first problem: .*\.json:1: no split"),
    ],
)
def test_files_that_are_broken_as_a_whole(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "dataset_x.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=reason) as caught:
        read(Address(file))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)
