from __future__ import annotations

from pathlib import Path

import pytest

from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.images import PictureFile
from diptych.errors import DataError


def test_a_bad_row_is_left_out_and_no_other_row_moves(tmp_path: Path) -> None:
    builder = CorpusBuilder(tmp_path / "data.csv")
    for row, name in enumerate(["a", "b", "a", "c"], 1):
        with builder.reading_row(tmp_path / "data.csv", row):
            builder.require_unique("image", name)
            if name == "b":
                raise DataError("no good")
            builder.add_image(f"{name}.jpg", tmp_path / name, name, "train")
            builder.add_text(f"text of {name}", name, "train")
    corpus = builder.build()
    assert corpus.name == "data"
    assert corpus.image_ids == ("a.jpg", "c.jpg")
    assert corpus.texts == ("text of a", "text of c")
    assert corpus.image_groups.tolist() == corpus.text_groups.tolist() == [0, 1]
    assert corpus.pictures == (PictureFile(tmp_path / "a"), PictureFile(tmp_path / "c"))
    assert [str(problem) for problem in corpus.problems] == [
        f"{tmp_path}/data.csv:2: no good",
        f"{tmp_path}/data.csv:3: image 'a' is already at {tmp_path}/data.csv:1",
    ]


def test_an_error_that_is_no_data_error_is_not_swallowed(tmp_path: Path) -> None:
    builder = CorpusBuilder(tmp_path)
    with pytest.raises(ZeroDivisionError), builder.reading_row(tmp_path, 1):
        raise ZeroDivisionError


def test_a_corpus_without_images_or_texts_names_the_reason(tmp_path: Path) -> None:
    builder = CorpusBuilder(tmp_path)
    with pytest.raises(DataError, match="no usable image in it; do this"):
        builder.build(remedy="do this")
    builder.add_image("a.jpg", tmp_path / "a.jpg", "a", "train")
    with pytest.raises(DataError, match=r"no usable text in it$"):
        builder.build()
    builder.add_problem(tmp_path / "a.txt", 7, "empty")
    with pytest.raises(DataError, match=r"no usable text in it; first problem: .*a\.txt:7: empty"):
        builder.build(remedy="do this")


def test_a_file_name_may_be_any_bytes(tmp_path: Path) -> None:
    builder = CorpusBuilder(tmp_path)
    builder.add_image("a.jpg", tmp_path / "a.jpg", "a", "train")
    builder.add_text("a", "a", "train")
    builder.add_problem(Path("\udcff.txt"), None, "odd")
    assert [problem.file for problem in builder.build().problems] == ["\\udcff.txt"]


def test_the_splits_are_those_of_the_source_if_any_image_has_one(tmp_path: Path) -> None:
    builder = CorpusBuilder(tmp_path)
    builder.add_image("a.jpg", tmp_path / "a.jpg", "a", "train", is_default=True)
    builder.add_text("a", "a", "train")
    assert builder.build().split_origin == "default"
    builder.add_image("b.jpg", tmp_path / "b.jpg", "b", "val")
    assert builder.build().split_origin == "source"


def test_images_without_pictures(tmp_path: Path) -> None:
    builder = CorpusBuilder(tmp_path)
    builder.add_image("a", None, "a", "train")
    builder.add_text("a", "a", "train")
    assert builder.build().pictures is None


@pytest.mark.parametrize(("ids", "expected"), [((7, "b#0"), ("7", "b#0")), ((7, None), None), ((None, 7), None)])
def test_texts_have_ids_if_all_of_them_do(tmp_path: Path, ids: tuple[object, ...], expected: object) -> None:
    builder = CorpusBuilder(tmp_path)
    builder.add_image("a", None, "a", "train")
    for identity in ids:
        builder.add_text("a", "a", "train", identity)
    assert builder.build().text_ids == expected
