from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.data.check import Grounding, Shared, Size, Spread, check
from diptych.data.corpus import Box, Corpus, Features, Phrase, Picture, Problem
from diptych.data.images import PictureFile
from diptych.errors import ImageError


class Drawn:
    def __init__(self, colour: str | None) -> None:
        self.colour = colour

    def load(self) -> Image.Image:
        if self.colour is None:
            raise ImageError("cannot be drawn")
        return Image.new("RGB", (2, 2), self.colour)


def corpus_of(
    images: list[tuple[str, int, str]],
    texts: list[tuple[str, int, str]],
    pictures: list[Picture] | None = None,
    features: np.ndarray | None = None,
    problems: tuple[Problem, ...] = (),
) -> Corpus:
    ids, image_groups, image_splits = zip(*images, strict=True)
    captions, text_groups, text_splits = zip(*texts, strict=True)
    return Corpus(
        name="mine",
        image_ids=ids,
        image_groups=np.array(image_groups),
        image_splits=np.array(image_splits),
        texts=captions,
        text_groups=np.array(text_groups),
        text_splits=np.array(text_splits),
        pictures=pictures,
        features=None if features is None else Features([features]),
        problems=problems,
    )


def files(folder: Path, *colours: str) -> list[Picture]:
    pictures: list[Picture] = []
    for number, colour in enumerate(colours):
        Image.new("RGB", (4, 4), colour).save(folder / f"{number}.png")
        pictures.append(PictureFile(folder / f"{number}.png"))
    return pictures


def test_counts_and_spreads() -> None:
    images = [("a", 1, "train"), ("b", 1, "train"), ("c", 2, "train"), ("d", 3, "test"), ("e", 4, "test")]
    texts = [("one two", 1, "train"), ("one two three four", 1, "train"), ("one", 2, "train"),
             ("x y", 3, "test"), ("x y z", 3, "test"), ("x", 3, "test"), ("of nobody", 9, "val")]  # fmt: skip
    report = check(corpus_of(images, texts))
    assert report.total == Size(images=5, texts=7, groups=5)
    assert report.splits == {"train": Size(3, 3, 2), "val": Size(0, 1, 1), "test": Size(2, 3, 2)}
    assert report.texts_per_image == Spread(minimum=0, median=2.0, mean=1.6, maximum=3)
    assert report.words_per_text == Spread(minimum=1, median=2.0, mean=15 / 7, maximum=4)
    assert report.images_without_texts == ("e",)
    assert report.texts_without_images == ("of nobody",)
    nothing = Shared(0, ())
    assert (report.shared_texts, report.shared_images, report.shared_groups) == (nothing, nothing, nothing)
    assert report.problems == ()


def test_phrases_and_boxes_are_counted_if_there_are_any() -> None:
    images = [("a", 0, "train"), ("b", 0, "train"), ("c", 1, "test")]
    texts = [("x", 0, "train"), ("y", 1, "test")]
    plain = corpus_of(images, texts)
    assert check(plain).grounding is None
    boxes = [[Box("dog", 0, 0, 1, 1), Box("cat", 0, 0, 1, 1)], [Box("dog", 0, 0, 1, 1)], []]
    phrases = [[Phrase("a dog", "dog"), Phrase("the dog", "dog"), Phrase("a day", "day")], [Phrase("a dog", "dog")]]
    report = check(replace(plain, boxes=boxes, phrases=phrases))
    assert report.grounding == Grounding(
        phrases=4, phrases_without_a_box=2, boxes=3, boxes_without_a_phrase=1, images_without_a_box=1
    )
    assert report.to_json()["named"]["phrases"] == 4
    assert check(replace(plain, boxes=boxes)).grounding == Grounding(0, 0, 3, 3, 1)
    assert check(replace(plain, phrases=phrases)).grounding == Grounding(4, 4, 0, 0, 3)


def test_texts_in_two_splits() -> None:
    images = [(str(i), i, split) for i, split in enumerate(["train", "train", "test", "val"])]
    texts = [("a dog", 0, "train"), ("a dog", 1, "train"), ("a dog", 2, "test"), ("A dog", 3, "val"), ("b", 0, "train")]
    assert check(corpus_of(images, texts)).shared_texts == Shared(1, ("a dog (train, test)",))


def test_files_with_the_same_bytes_in_two_splits(tmp_path: Path) -> None:
    pictures = files(tmp_path, "red", "red", "blue", "red", "blue")
    images = [(f"{i}.png", i, split) for i, split in enumerate(["train", "train", "test", "val", "test"])]
    texts = [(f"text {i}", i, split) for i, (_, _, split) in enumerate(images)]
    for decode in (True, False):
        report = check(corpus_of(images, texts, pictures), decode=decode)
        assert report.shared_images == Shared(1, ("0.png (train), 3.png (val)",))
        assert report.decoded is decode


def test_drawn_pictures_and_features_with_the_same_content_in_two_splits() -> None:
    images = [("a", 0, "train"), ("b", 1, "test"), ("c", 2, "test")]
    texts = [("x", 0, "train"), ("y", 1, "test"), ("z", 2, "test")]
    drawn: list[Picture] = [Drawn("red"), Drawn("blue"), Drawn("red")]
    assert check(corpus_of(images, texts, drawn)).shared_images == Shared(1, ("a (train), c (test)",))
    vectors = np.array([[1, 2], [3, 4], [1, 2]], np.float32)
    assert check(corpus_of(images, texts, features=vectors)).shared_images == Shared(1, ("a (train), c (test)",))
    other: list[Picture] = [Drawn("red"), Drawn("blue"), Drawn("green")]
    assert check(corpus_of(images, texts, other, vectors)).shared_images == Shared(0, ())  # pictures come first


def test_groups_in_two_splits() -> None:
    images = [("a", 0, "train"), ("b", 0, "test"), ("c", 1, "train")]
    texts = [("x", 0, "train"), ("y", 1, "val"), ("z", 1, "train")]
    assert check(corpus_of(images, texts)).shared_groups == Shared(2, ("a (train), b (test)", "c (train), y (val)"))


def test_examples_are_few_but_all_are_counted() -> None:
    images = [("a", 0, "train"), ("b", 1, "test")]
    texts = [(f"text {i}", group, split) for i in range(9) for group, split in ((0, "train"), (1, "test"))]
    shared = check(corpus_of(images, texts)).shared_texts
    assert (shared.count, len(shared.examples)) == (9, 5)


def test_every_problem_is_kept_in_order(tmp_path: Path) -> None:
    pictures = files(tmp_path, "red", "green", "blue")
    (tmp_path / "1.png").write_bytes((tmp_path / "1.png").read_bytes()[:-30])
    (tmp_path / "2.png").unlink()
    images = [("0.png", 0, "train"), ("1.png", 1, "train"), ("2.png", 2, "train")]
    first = Problem("captions.csv", 7, "the text is empty")
    corpus = corpus_of(images, [("x", 0, "train")], pictures, problems=(first,))
    problems = check(corpus).problems
    assert problems[0] == first
    assert [(problem.file, problem.row) for problem in problems[1:]] == [(str(p.path), None) for p in pictures[1:]]
    assert problems[1].message.startswith("damaged or cut short (")
    assert problems[2].message == "no such file"
    assert [p.message for p in check(corpus, decode=False).problems[1:]] == [
        "cannot be read (No such file or directory)"
    ]


def test_pictures_that_fail_and_features_that_are_not_finite() -> None:
    images, texts = [("a", 0, "train"), ("b", 1, "train")], [("x", 0, "train")]
    drawn: list[Picture] = [Drawn(None), Drawn("red")]
    vectors = np.array([[[1, 2]], [[3, np.nan]]], np.float32)
    assert check(corpus_of(images, texts, drawn, vectors)).problems == (
        Problem("a", None, "cannot be drawn"),
        Problem("b", None, "features that are infinite or not numbers"),
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_is_reported_in_the_calling_thread_and_ends_with_all(tmp_path: Path, workers: int) -> None:
    images = [(str(i), i, "train") for i in range(150)]
    drawn: list[Picture] = [Drawn("red") for _ in images]
    reported = []

    def progress(done: int, total: int) -> None:
        reported.append((done, total, threading.current_thread() is threading.main_thread()))

    check(corpus_of(images, [("x", 0, "train")], drawn), workers=workers, progress=progress)
    assert reported == [(64, 150, True), (128, 150, True), (150, 150, True)]


def test_an_interrupt_leaves_the_rest_undone() -> None:
    loaded = []

    class Watched(Drawn):
        def load(self) -> Image.Image:
            loaded.append(self)
            return super().load()

    images = [(str(i), i, "train") for i in range(6400)]
    drawn: list[Picture] = [Watched("red") for _ in images]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(corpus_of(images, [("x", 0, "train")], drawn), workers=1, progress=interrupt)
    assert len(loaded) < 3200


def test_the_json_is_complete(tmp_path: Path) -> None:
    problems = tuple(Problem("captions.csv", row, "the text is empty") for row in range(60))
    images, texts = [("a", 0, "train"), ("b", 1, "test")], [("same", 0, "train"), ("same", 1, "test")]
    report = check(corpus_of(images, texts, problems=problems))
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["total"] == {"images": 2, "texts": 2, "groups": 2}
    assert plain["splits"]["test"] == {"images": 1, "texts": 1, "groups": 1}
    assert plain["shared_texts"] == {"count": 1, "examples": ["same (train, test)"]}
    assert plain["words_a_text"] == {"minimum": 1, "median": 1.0, "mean": 1.0, "maximum": 1}
    assert plain["problems"][59] == {"file": "captions.csv", "row": 59, "message": "the text is empty"}
    assert len(plain["problems"]) == 60
