"""What each section of the page tells."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from diptych.report.run_page import (
    Answer,
    AttendedPhoto,
    AttentionSection,
    Card,
    Cards,
    CardSection,
    Contents,
    CorrelationSection,
    Direction,
    Labelled,
    Measure,
    Question,
    SamplingRow,
    Word,
    WordsSection,
    render,
)


def test_the_table_tells_values_intervals_and_chance(everything, cells):
    words = cells(everything())
    assert "Direction R@1 R@5 R@10 Median rank Mean rank" in words
    assert (
        "Image to text 45.2 41.0 – 49.4 77.4 88.6 85.8 – 91.2 2 2 – 3 1,234.6 1,001.0 – 1,500.0 "
        "by chance 0.2 1.0 2.0 Text to image 33.9 31.4 – 36.3 – – 3.5 9.8 rsum 395.0 380.2 – 409.4" in words
    )
    assert words.count("by chance") == 1


def test_map_is_a_column_where_some_direction_has_it(read, everything, cells):
    def columns(contents):
        elements = read(render(contents)).elements
        return sum(tag == "th" and a.get("scope") == "col" for tag, a in elements), [
            int(a["colspan"]) for tag, a in elements if tag == "td" and "colspan" in a
        ]

    plain = Contents("t", directions=everything().directions, rsum=Measure(1.0))
    first, second = plain.directions
    both = replace(plain, directions=[replace(first, precision=Measure(31.25, 29.04, 33.4)), second])
    words = cells(both)
    assert "mean average precision over all right answers (mAP), in percent. Beneath each" in words
    assert "Direction R@1 R@5 R@10 mAP Median rank Mean rank" in words
    assert "88.6 85.8 – 91.2 31.2 29.0 – 33.4 2 2 – 3" in words
    assert "Text to image 33.9 31.4 – 36.3 – – – 3.5 9.8" in words
    assert (columns(both), columns(plain)) == ((7, [6]), (6, [5]))  # rsum reaches below all columns but the first
    reach = [a["width"] for _, a in read(render(both)).elements if a.get("class") == "reach"]
    assert reach == ["45.2", "77.4", "88.6", "31.25", "33.9"]
    assert "mAP" not in render(plain)
    assert "precision" not in cells(plain)


def test_columns_are_the_cutoffs_that_were_measured(cells):
    row = Direction("image to text", {100: Measure(3.0), 20: Measure(2.0)}, Measure(1.0), Measure(1.0))
    assert "R@20 R@100 Median" in cells(Contents("t", directions=[row]))


def test_what_is_not_a_number_is_a_dash(cells):
    row = Direction("image to text", {1: Measure(math.nan, math.nan, math.nan)}, Measure(math.inf), Measure(math.nan))
    words = cells(Contents("t", directions=[row], rsum=Measure(math.nan)))
    assert "Image to text – – – rsum –" in words
    assert not re.search(r"\b(nan|inf)\b", render(Contents("t", directions=[row])))


def test_a_bar_is_as_long_as_its_recall(read, everything):
    page = read(render(everything()))
    reach = [a["width"] for _, a in page.elements if a.get("class") == "reach"]
    assert reach == ["45.2", "77.4", "88.6", "33.9", "12.5", "20.0"]  # of phrases those of R@1
    between = [(float(a["x"]), float(a["width"])) for _, a in page.elements if a.get("class") == "between"]
    assert between[0] == pytest.approx((41.04, 8.36))
    assert len(between) == 4


def test_right_and_wrong_are_told_without_colour(read, everything):
    contents = everything()
    right, wrong = "right", "wrong"
    best = read(render(Contents("t", best=contents.best)))
    assert best.marks() == [wrong, right, wrong, wrong, wrong, right, wrong, wrong, wrong, wrong]
    assert "its image came at rank 2" in " ".join(best.words().split())
    assert "a text of its own came first" in best.words()
    assert read(render(Contents("t", questions=contents.questions))).marks() == []


def test_the_truth_is_shown_where_the_answers_do_not_reach_it(read, everything):
    contents = everything()
    worst = read(render(Contents("t", worst=contents.worst)))
    assert worst.marks() == ["wrong", "right", "wrong", "right"]
    words = " ".join(worst.words().split())
    assert "its image came at rank 57" in words
    assert "0.010 at rank 57" in words
    assert "its first own text came at rank 1,204" in words
    assert "own words 0.020" in words
    without = [replace(example, truth=None) for example in contents.worst]
    assert read(render(Contents("t", worst=without))).marks() == ["wrong", "wrong"]


def test_scores_pictures_and_names_belong_together(read):
    answers = [Answer("one.jpg", 0.51, None, "data:image/png;base64,AAAA"), Answer("two.jpg", -0.25)]
    page = read(render(Contents("t", questions=[Question("dogs", answers)])))
    assert [(a["src"], a["alt"]) for tag, a in page.elements if tag == "img"] == [(answers[0].picture, "one.jpg")]
    assert " ".join(page.words().split()).endswith("dogs 0.510 one.jpg no picture \u22120.250 two.jpg")


def test_each_word_stands_beneath_its_picture_with_its_cosine(read, picture):
    words = [Word("dogs", picture, 0.614), Word("run", picture)]
    page = read(render(Contents("t", attention=AttentionSection("how", [AttendedPhoto("a.jpg", picture, words)]))))
    assert "how a.jpg dogs 0.61 run" in " ".join(page.words().split())
    assert [a["alt"] for tag, a in page.elements if tag == "img"][1:] == [
        "what “dogs” looks at",
        "what “run” looks at",
    ]


def test_phrases_are_told_by_kind_and_drawn_in_their_colours(read, located, picture):
    page = read(render(Contents("t", phrases=located("a man", picture))))
    words = " ".join(page.words().split())
    assert "Kind Phrases R@1 R@5 Ceiling all 1,200 12.5 10.0 – 15.0 30.0 80.0 70.0 – 90.0" in words
    assert "a man 7 20.0 40.0 60.0 Sum 42.5 40.0 – 45.0" in words
    assert "Found a man A a man . a man 0.75 two no region" in words
    assert page.marks() == ["right", "wrong"]
    rects = [a for _, a in page.elements if a.get("class") in ("told", "found")]
    assert [(a["class"], a["x"], a["y"], a["width"], a["height"]) for a in rects] == [
        ("told", "1.0", "9.0", "21.0", "31.0"),
        ("found", "0.0", "10.5", "20.0", "30.0"),
        ("told", "50.0", "0.0", "10.0", "10.0"),
    ]
    classes = [a["class"] for _, a in page.elements if "hue-" in a.get("class", "")]
    assert classes == ["hue-0", "hue-1", "phrase hue-0", "swatch hue-0", "swatch hue-1"]
    assert ("100", "50") in [(a.get("width"), a.get("height")) for tag, a in page.elements if tag == "img"]


def test_cards_keep_labels_values_texts_and_pictures_together(read, picture):
    texts = [Labelled("GT", "own text"), Labelled("HN", "other text", "0.26"), Labelled("run", "third", "1,204", True)]
    images = [Labelled("GT", "own.jpg", picture=picture), Labelled("HN", "other.jpg", "0.08", False)]
    groups = [
        Cards("Texts", [Card("image to text", "a.jpg", texts, picture)]),
        Cards("Images", [Card("text to image", "a dog", images)]),
        Cards("Nothing to show", []),
    ]
    page = read(render(Contents("t", negatives=CardSection("how to read", groups))))
    words = " ".join(page.words().split())
    assert words.endswith(
        "Hardest negatives in a batch how to read Texts a.jpg GT own text HN [0.26] other text run [1,204] third "
        "Images a dog GT own.jpg no picture HN [0.08] other.jpg"
    )
    assert page.marks() == ["right", "wrong"]
    assert [a["alt"] for tag, a in page.elements if tag == "img"] == ["a.jpg", "own.jpg"]


def test_sampling_tells_small_shares_as_small_and_not_as_none(cells):
    rows = [
        SamplingRow("image to text", 128, 0.9, 0.0000015, Measure(0.0, 0.0, 0.003)),
        SamplingRow("text to image", 6905, 0.999, 0.001, Measure(0.01234, 0.01, 0.015)),
        SamplingRow("text to image", 2, 0.5, 0.5, Measure(0.49)),
    ]
    words = cells(Contents("t", sampling=rows))
    assert "Direction Batch Percentile Predicted Measured" in words
    assert "Image to text 128 pairs 90th < 0.01 0.00 0.00 – 0.30" in words
    assert "Text to image 6,905 pairs 99.9th 0.10 1.23 1.00 – 1.50" in words
    assert words.endswith("Text to image 2 pairs 50th 50.00 49.00")


def test_words_are_coloured_by_their_share(read, weighed, picture):
    page = read(render(Contents("t", words=WordsSection("how", [weighed("dog", picture), weighed("cat", None)]))))
    coloured = [(a["class"], a["style"], a["title"]) for _, a in page.elements if "style" in a]
    helps, harms = ("helps most", "--share: 100%", "+0.0712"), ("harms", "--share: 50%", "\u22120.0356")
    assert coloured == [helps, harms] * 2
    assert [text for tag, text in page.texts if tag == "s"] == ["zebra dog", "zebra cat"]
    assert "no picture" in page.words()


def test_separation_tells_the_area_its_interval_and_both_means(everything, cells):
    words = cells(Contents("t", separation=everything().separation))
    assert "Shared area S 0.1633 0.1500 – 0.1800" in words
    assert "Mean score of right pairs 0.2405 Mean score of wrong pairs \u22120.0237" in words


def test_maps_stand_with_their_means_or_a_reason_stands_alone(read, everything, picture):
    page = read(render(Contents("t", correlation=everything().correlation)))
    assert "Before mean absolute correlation 0.420" in re.sub(r"\s+", " ", page.words())
    assert [a["src"] for tag, a in page.elements if tag == "img"] == [picture, picture]
    alone = read(render(Contents("t", correlation=CorrelationSection("no weights"))))
    assert "no weights" in alone.words()
    assert not [tag for tag, _ in alone.elements if tag in ("img", "figure")]
