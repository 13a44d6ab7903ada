from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.data.corpus import Box, Corpus, Phrase
from diptych.data.phrases import find_mentions
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.report.sections import phrases
from diptych.report.sections.phrases import phrase_section, phrase_spans

LEFT, RIGHT = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)


class Grey:
    def load(self) -> Image.Image:
        return Image.new("RGB", (200, 100), "#c0c0c0")


def corpus_of(count: int, second=True) -> Corpus:
    """Photos whose first text says less than the second."""
    texts, said = ["A cat sits."], [(Phrase("A cat", "1", ("animals",)),)]
    if second:
        texts.append("A cat and a dog.")
        said.append((Phrase("A cat", "1", ("animals",)), Phrase("a dog", "2", ("animals", "other"))))
    return Corpus(
        "pets",
        [f"{number}.jpg" for number in range(count)],
        np.arange(count),
        np.full(count, "test"),
        texts * count,
        np.arange(count).repeat(len(texts)),
        np.full(len(texts) * count, "test"),
        pictures=[Grey()] * count,
        boxes=[[Box("1", *LEFT), Box("2", *RIGHT)]] * count,
        phrases=said * count,
    )


def grounding(corpus: Corpus, ranks, boxes=None) -> GroundingResult:
    said = find_mentions(corpus)
    boxes = said.boxes if boxes is None else np.array(boxes, np.float32)
    return GroundingResult(np.array(ranks, float), said.images, said.kinds, np.arange(len(said)), boxes)


def test_the_table_shows_the_measured_values():
    corpus = corpus_of(2)
    found = grounding(corpus, [1, 1, 1, 7, 1, math.inf])
    section = phrase_section(found, corpus)
    assert [(row.name, row.count) for row in section.rows] == [("all", 6), ("animals", 6), ("other", 2)]
    whole, _, other = section.rows
    for cutoff, measure in whole.recall.items():
        name = f"phrase_r{cutoff}"
        assert (measure.value, measure.low, measure.high) == (found.metrics[name], *found.intervals.bounds[name])
    assert (whole.ceiling.value, whole.ceiling.interval) == (
        found.metrics["ceiling"],
        found.intervals.bounds["ceiling"],
    )
    assert other.recall[1].value == 50
    assert other.recall[1].interval is None
    assert section.sum.value == found.metrics["phrase_sum"]
    assert "50%" in section.note


def test_photos_are_shown_with_the_sentence_of_the_most_phrases():
    corpus = corpus_of(5)
    ranks = [[9, 1, 1], [9, 1, 1], [1, 1, 2], [1, 3, 2], [1, 1, 1]]
    section = phrase_section(grounding(corpus, np.concatenate(ranks)), corpus)
    best, worst = section.groups
    assert best.heading == "All phrases found"
    assert [photo.name for photo in best.photos] == ["0.jpg", "1.jpg", "4.jpg"]
    assert [photo.name for photo in worst.photos] == ["3.jpg", "2.jpg"]
    assert all([phrase.text for phrase in photo.phrases] == ["A cat", "a dog"] for photo in best.photos)
    assert [phrase.correct for phrase in worst.photos[1].phrases] == [True, False]
    assert [(span.text, span.colour) for span in worst.photos[0].sentence] == [
        ("A cat", 0),
        (" and ", None),
        ("a dog", 1),
        (".", None),
    ]


def test_boxes_are_in_pixels_and_have_their_overlap():
    corpus = corpus_of(1, second=False)
    section = phrase_section(grounding(corpus, [2], [RIGHT]), corpus)
    (photo,) = section.groups[0].photos
    assert photo.size == (200, 100)
    assert photo.phrases[0].annotated == (0, 0, 100, 100)
    assert photo.phrases[0].predicted == (100, 0, 100, 100)
    assert photo.phrases[0].overlap == 0
    near = phrase_section(grounding(corpus, [1], [(0, 0, 0.4, 1)]), corpus).groups[0].photos[0].phrases[0]
    assert near.overlap == pytest.approx(0.8)
    assert near.correct
    none = phrase_section(grounding(corpus, [math.inf], [(0, 0, 0, 0)]), corpus).groups[0].photos[0].phrases[0]
    assert (none.predicted, none.overlap, none.correct) == (None, None, False)


def test_unreadable_mentions_do_not_shift_the_others():
    corpus = corpus_of(3)
    corpus = replace(corpus, boxes=[*corpus.boxes[:2], [Box("1", *RIGHT), Box("2", *LEFT)]])
    said = find_mentions(corpus)
    rows = np.array([6, 7, 8])  # those of the last photo alone could be read
    found = GroundingResult(np.ones(3), said.images[rows], [said.kinds[row] for row in rows], rows, said.boxes[rows])
    (group,) = phrase_section(found, corpus).groups
    assert [photo.name for photo in group.photos] == ["2.jpg"]
    assert [phrase.overlap for phrase in group.photos[0].phrases] == [1, 1]


def test_no_more_phrases_than_colours(monkeypatch):
    monkeypatch.setattr(phrases, "PHRASES_PER_PHOTO", 1)
    corpus = corpus_of(1)
    (group,) = phrase_section(grounding(corpus, [1, 1, 1]), corpus).groups
    assert len(group.photos[0].phrases) == 1


def test_a_corpus_without_pictures_has_only_the_table():
    corpus = corpus_of(1)
    section = phrase_section(grounding(corpus, [1, 1, 1]), replace(corpus, pictures=None))
    assert not section.groups
    assert "no pictures" in section.note
    assert len(section.rows) == 3


def test_phrases_are_found_in_their_sentence():
    told = [(span.text, span.colour) for span in phrase_spans("A man and a man", ["a man", "a man", "A woman"])]
    assert told == [("A man", 0), (" and ", None), ("a man", 1)]


@given(st.text(max_size=30), st.lists(st.text(max_size=5), max_size=4))
def test_spans_add_up_to_the_text(text, some):
    made = phrase_spans(text, some)
    assert "".join(span.text for span in made) == text
    colours = [span.colour for span in made if span.colour is not None]
    assert len(set(colours)) == len(colours)
