from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from diptych.data.check import check
from diptych.data.corpus import Box, Corpus, Phrase, Picture, Problem
from diptych.data.images import PictureFile
from diptych.report.tables.data_check import data_check_summary


def corpus_of(
    images: list[tuple[str, int, str]],
    texts: list[tuple[str, int, str]],
    pictures: list[Picture] | None = None,
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
        problems=problems,
    )


def shown(corpus: Corpus, decode: bool = True) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(data_check_summary(check(corpus, decode)))
    return out.getvalue()


def test_the_terminal_shows_each_problem_up_to_fifty() -> None:
    images, texts = [("a [b]", 0, "train"), ("alone", 1, "test")], [("same", 0, "train"), ("of nobody", 3, "test")]
    for count in (0, 3, 50, 53):
        problems = tuple(Problem("captions.csv", row, f"wrong [bold]{row}[/bold]") for row in range(1, count + 1))
        out = shown(corpus_of(images, texts, problems=problems))
        assert out.count("captions.csv:") == min(count, 50)
        assert ("... and 3 more; --json lists all" in out) == (count == 53)
        assert ("captions.csv:3: wrong [bold]3[/bold]" in out) == (count > 0)
        assert ("problem: none" in out) == (count == 0)
        for line in ("texts per image  0 to 1", "  alone", "  of nobody", "image without a text: 1"):
            assert line in out


def test_texts_cannot_steer_the_terminal() -> None:
    images, texts = [("a", 0, "train")], [("evil \x1b[2J\x07 text", 3, "train")]
    out = shown(corpus_of(images, texts))
    assert "evil \ufffd[2J\ufffd text" in out
    assert "\x1b[2J" not in out


def test_undecoded_images_are_mentioned(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    Image.new("RGB", (4, 4)).save(picture)
    corpus = corpus_of([("a", 0, "train")], [("x", 0, "train")], [PictureFile(picture)])
    assert "images were not decoded" in shown(corpus, decode=False)
    assert "images were not decoded" not in shown(corpus)


def test_phrases_and_boxes_are_shown_if_there_are_any() -> None:
    plain = corpus_of([("a", 0, "train")], [("a dog", 0, "train")])
    assert "phrases" not in shown(plain)
    boxes = [[Box("dog", 0, 0, 1, 1), Box("cat", 0, 0, 1, 1)]]
    phrases = [[Phrase("a dog", "dog"), Phrase("a day", "day"), Phrase("a night", "night")]]
    out = shown(replace(plain, boxes=boxes, phrases=phrases))
    assert "phrases: 3, 2 without a box" in out
    assert "boxes: 2, 1 without a phrase; images without a box: 0" in out
