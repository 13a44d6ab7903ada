from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats.coco import read
from diptych.data.images import PictureFile
from diptych.errors import DataError


def captions(file: Path, images: list[Any], annotations: list[Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"info": {}, "images": images, "annotations": annotations, "licenses": []}
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def image(number: int | str, name: str) -> dict[str, Any]:
    return {"id": number, "file_name": name, "width": 1, "height": 1}


def annotation(image: Any, caption: Any, **more: Any) -> dict[str, Any]:
    return {"image_id": image, "caption": caption, **more}


def folder_with(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def texts_of(corpus: Corpus) -> dict[str, list[str]]:
    return {
        name: [text for text, other in zip(corpus.texts, corpus.text_groups, strict=True) if other == group]
        for name, group in zip(corpus.image_ids, corpus.image_groups, strict=True)
    }


def test_captions_find_their_image_in_any_order(tmp_path: Path) -> None:
    folder_with(tmp_path, "images/a.jpg", "images/b.jpg", "images/c.jpg")
    file = captions(
        tmp_path / "captions_train2014.json",
        [image(30, "a.jpg"), image(10, "b.jpg"), image("x", "c.jpg")],
        [annotation(10, "b1\n", id=1), annotation("x", "c1", id=2), annotation(30, "a1"), annotation(10, "b2")],
    )
    corpus = read(Address(file))
    assert texts_of(corpus) == {"a.jpg": ["a1"], "b.jpg": ["b1", "b2"], "c.jpg": ["c1"]}
    assert corpus.image_splits.tolist() == ["train"] * 3
    assert corpus.text_splits.tolist() == ["train"] * 4
    assert corpus.problems == ()
    assert corpus.text_ids is None  # not all annotations have one


def test_annotation_ids_are_those_of_their_texts(tmp_path: Path) -> None:
    folder_with(tmp_path, "images/a.jpg")
    annotations = [annotation("a", "a1", id=9), annotation("a", " ", id=7), annotation("a", "a2", id="x")]
    file = captions(tmp_path / "captions_train.json", [image("a", "a.jpg")], annotations)
    corpus = read(Address(file))
    assert (corpus.texts, corpus.text_ids) == (("a1", "a2"), ("9", "x"))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("captions_train2014.json", "train"),
        ("captions_val2017.json", "val"),
        ("captions_test.json", "test"),
        ("my-validation-set.json", "val"),
        ("dev.json", "val"),
        ("captions_restval2014.json", "restval"),
        ("valentine.json", "train"),
        ("captions.json", "train"),
    ],
)
def test_the_name_tells_the_split(tmp_path: Path, name: str, split: str) -> None:
    folder_with(tmp_path, "a.jpg")
    corpus = read(Address(captions(tmp_path / name, [image(1, "a.jpg")], [annotation(1, "a")])))
    assert corpus.image_splits.tolist() == corpus.text_splits.tolist() == [split]


def test_each_file_in_a_folder_is_a_split_with_its_own_ids(tmp_path: Path) -> None:
    folder_with(tmp_path, "train2014/1.jpg", "val2014/1.jpg", "val2014/2.jpg")
    captions(tmp_path / "annotations/captions_train2014.json", [image(1, "1.jpg")], [annotation(1, "in train")])
    captions(
        tmp_path / "annotations/captions_val2014.json",
        [image(1, "1.jpg"), image(2, "2.jpg")],
        [annotation(2, "second in val"), annotation(1, "first in val")],
    )
    captions(tmp_path / "annotations/instances_val2014.json", [image(1, "1.jpg")], [annotation(1, None)])
    for source in (tmp_path, tmp_path / "annotations"):
        corpus = read(Address(source))
        assert texts_of(corpus) == {
            "train2014/1.jpg": ["in train"],
            "val2014/1.jpg": ["first in val"],
            "val2014/2.jpg": ["second in val"],
        }
        assert corpus.image_splits.tolist() == ["train", "val", "val"]
        assert corpus.pictures == tuple(PictureFile(tmp_path / name) for name in corpus.image_ids)
        assert corpus.problems == ()


@pytest.mark.parametrize(
    "place", ["data/images/val2017/", "data/images/", "data/val2017/", "data/", "images/val2017/", "val2017/", ""]
)
def test_usual_places_of_images(tmp_path: Path, place: str) -> None:
    folder_with(tmp_path, f"{place}a.jpg")
    file = captions(tmp_path / "data/captions_val2017.json", [image(1, "a.jpg")], [annotation(1, "a")])
    assert read(Address(file)).pictures == (PictureFile(tmp_path / f"{place}a.jpg"),)


def test_the_folder_of_the_split_comes_first(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "val2017/a.jpg")
    file = captions(tmp_path / "captions_val2017.json", [image(1, "a.jpg")], [annotation(1, "a")])
    assert read(Address(file)).pictures == (PictureFile(tmp_path / "val2017/a.jpg"),)


def test_images_in_a_named_folder(tmp_path: Path) -> None:
    folder_with(tmp_path, "else/train/a.jpg", "data/a.jpg")
    file = captions(tmp_path / "data/train.json", [image(1, "a.jpg")], [annotation(1, "a")])
    assert read(Address(file, str(tmp_path / "else"))).pictures == (PictureFile(tmp_path / "else/train/a.jpg"),)


def test_broken_rows_are_named_and_left_out_and_no_neighbour_moves(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg")
    file = captions(
        tmp_path / "captions_test.json",
        [
            image(1, "a.jpg"),
            image(2, "gone.jpg"),
            {"file_name": "b.jpg"},
            {"id": 4},
            image(5, "c.jpg"),
            image(5, "d.jpg"),
            image(1, "a.jpg"),
            "nonsense",
            image(6, "e.jpg"),
            {"id": [7], "file_name": "b.jpg"},
            image(8, "a.jpg"),
        ],
        [
            annotation(1, "of a", id=1),
            annotation(2, "of what is gone", id=2),
            annotation(5, "of c or d", id=3),
            annotation(99, "of nothing", id=4),
            annotation(6, " ", id=5),
            {"image_id": 6},
            {"caption": "of nobody"},
            annotation(6, "of e", id=6),
            annotation(6, "the same id", id=6),
            None,
            annotation(6, "of e, too"),
        ],
    )
    corpus = read(Address(file))
    assert texts_of(corpus) == {"a.jpg": ["of a"], "e.jpg": ["of e", "of e, too"]}
    unknown = "is used by several images; its captions could belong to any of them"
    assert {(problem.row, problem.message) for problem in corpus.problems} == {
        (2, f"no image 'gone.jpg' in {tmp_path} or {tmp_path.parent}"),
        (3, "no id"),
        (4, "no file_name"),
        (5, f"id 5 {unknown}"),
        (6, f"id 5 {unknown}"),
        (7, "id 1 is used twice"),
        (8, "a str, not a JSON object"),
        (10, "the id is of type list, not a string"),
        (11, f"image '{tmp_path / 'a.jpg'}' is already at {file}:1"),
        (4, "annotation of an image id 99 that is not in 'images'"),
        (5, "the text is empty"),
        (6, "no text"),
        (7, "no image_id"),
        (9, "annotation id 6 is used twice"),
        (10, "a NoneType, not a JSON object"),
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"images": [], "annotations": [', "not valid JSON"),
        ('{"images": []}', "no lists 'images' and 'annotations'"),
        ("[]", "no lists 'images' and 'annotations'"),
        ('{"images": [], "annotations": []}', "no usable image in it"),
        ('{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": []}', "no usable text in it"),
        ('{"images": [{"id": 1}], "annotations": []}', r"first problem: .*train\.json:1: no file_name"),
    ],
)
def test_files_that_are_broken_as_a_whole(tmp_path: Path, content: str, reason: str) -> None:
    folder_with(tmp_path, "a.jpg")
    file = tmp_path / "train.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=reason) as caught:
        read(Address(file))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_a_folder_without_caption_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no caption file in it"):
        read(Address(tmp_path))
