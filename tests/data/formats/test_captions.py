from __future__ import annotations

from pathlib import Path

import pytest

from diptych.data.address import Address
from diptych.data.formats.captions import read, recognises


def written(folder: Path, name: str, content: str, *images: str) -> Path:
    for image in images:
        (folder / image).parent.mkdir(parents=True, exist_ok=True)
        (folder / image).touch()
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("name", ["captions.txt", "results.TOKEN", "x.token.txt"])
def test_text_files_are_recognised(tmp_path: Path, name: str) -> None:
    assert not recognises(Address(tmp_path / name))
    assert recognises(Address(written(tmp_path, name, "a.jpg\ta dog")))
    assert not recognises(Address(tmp_path))


def test_bad_lines_are_left_out_and_the_others_keep_their_images(tmp_path: Path) -> None:
    lines = ["a.jpg#0\tone", "b.jpg two", "c.jpg#0\tthree", "a.jpg#0\tfour", "a.jpg#1\t ", "b.jpg\tfive"]
    corpus = read(Address(written(tmp_path, "captions.txt", "\n".join(lines), "a.jpg", "b.jpg")))
    assert corpus.image_ids == ("a.jpg", "b.jpg")
    assert list(zip(corpus.texts, corpus.text_groups.tolist(), strict=True)) == [("one", 0), ("five", 1)]
    assert corpus.text_ids is None
    assert [(problem.row, problem.message.partition(";")[0]) for problem in corpus.problems] == [
        (2, "no tab between the image's name and the caption"),
        (3, f"no image 'c.jpg' in {tmp_path}"),
        (4, f"caption 'a.jpg#0' is already at {tmp_path}/captions.txt:1"),
        (5, "the text is empty"),
    ]


def test_labels_are_the_ids_of_their_texts(tmp_path: Path) -> None:
    corpus = read(Address(written(tmp_path, "captions.txt", "a.jpg#0\tone\na.jpg#1\t \na.jpg#2\ttwo", "a.jpg")))
    assert (corpus.texts, corpus.text_ids) == (("one", "two"), ("a.jpg#0", "a.jpg#2"))


def test_a_first_folder_in_a_name_is_the_split(tmp_path: Path) -> None:
    images = ("train/a.jpg", "Dev/b.jpg", "test/c.jpg")
    file = written(tmp_path, "captions.txt", "".join(f"{name}\ta dog\n" for name in images), *images)
    assert read(Address(file)).image_splits.tolist() == ["train", "val", "test"]


def test_a_header_makes_it_a_table(tmp_path: Path) -> None:
    file = written(tmp_path, "captions.txt", "image,caption\na.jpg,a dog\n", "images/a.jpg")
    assert read(Address(file)).texts == ("a dog",)
