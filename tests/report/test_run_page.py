from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.report.elements import Answer, Measure
from diptych.report.run_page import RunPage, render_run_page, write_run_page
from diptych.report.sections.attention import AttendedPhoto, AttendedWord, AttentionSection
from diptych.report.sections.batch_negatives import BatchNegativesRow
from diptych.report.sections.correlations import CorrelationSection
from diptych.report.sections.examples import Question
from diptych.report.sections.hard_negatives import CardEntry, CardGroup, HardNegativesSection, QueryCard
from diptych.report.sections.recall import RecallRow
from diptych.report.sections.word_importance import WordImportanceSection

# The fields of a RunPage that have a section, and the HTML ids of the sections.
SECTIONS = {
    "attention": "attention",
    "batch_negatives": "batch-negatives",
    "best_queries": "best",
    "correlations": "correlations",
    "cross_retrieval": "cross-retrieval",
    "hard_negatives": "hard-negatives",
    "notices": "notices",
    "phrases": "phrases",
    "questions": "questions",
    "recall": "recall",
    "recipe": "recipe",
    "score_distributions": "score-distributions",
    "training_charts": "training",
    "word_importance": "word-importance",
    "worst_queries": "worst",
}

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</title></style><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' onload='alert(1)",
    "</code></pre></details><h1>",
    "{{ page.title }}{% raw %}{# #}",
    "a & b &lt; &amp; <!-- -->",
    "javascript:alert(1)",
]


@pytest.fixture(scope="module")
def plain(read, everything):
    """The page of everything with innocent words."""
    return read(render_run_page(everything()))


def test_every_section_is_present_and_well_formed(read, everything):
    page = read(render_run_page(everything()))
    assert page.identities() == set(SECTIONS.values())
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(headings))
    assert [tag for tag, _ in page.elements].count("caption") == 3
    assert all(a.get("alt") for tag, a in page.elements if tag == "img")
    assert all(a.get("scope") in ("row", "col") for tag, a in page.elements if tag == "th")
    labelled = {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a}
    assert labelled <= page.identities()


def test_an_empty_page_has_only_its_title(read):
    page = read(render_run_page(RunPage("An empty run")))
    assert page.words() == "An empty run Diptych report An empty run"
    assert not {"section", "table", "img", "dl", "details"} & {tag for tag, _ in page.elements}


@pytest.mark.parametrize(("name", "identity"), SECTIONS.items())
def test_an_empty_section_is_omitted(name, identity, read, everything, plain):
    empty = next(field.default for field in fields(RunPage) if field.name == name)
    page = read(render_run_page(replace(everything(), **{name: empty})))
    assert page.identities() == plain.identities() - {identity}


@pytest.mark.parametrize("evil", EVIL)
def test_malicious_texts_are_escaped(evil, read, everything, plain):
    page = read(render_run_page(everything(evil)))
    assert page.shape() == plain.shape()
    texts = [text for _, text in page.texts]
    innocent = [text for _, text in plain.texts]
    assert [text.replace(evil, "words") for text in texts] == innocent
    assert sum(evil in text for text in texts) > 25


@given(text=st.text(min_size=1).filter(str.strip))
def test_any_text_is_escaped(text, read, everything, plain):
    assert read(render_run_page(everything(text))).shape() == plain.shape()


def test_picture_addresses_are_escaped(read, everything, plain):
    for evil in EVIL:
        page = read(render_run_page(everything(picture=evil)))
        assert page.shape() == plain.shape()
        assert {a["src"] for tag, a in page.elements if tag == "img"} == {evil}


def test_a_chart_that_is_not_markup_is_shown_as_text(read):
    page = read(
        render_run_page(RunPage("t", training_charts=["<svg onload=alert(1)></svg>"]))
    )  # a plain str, not Markup
    assert "<svg onload=alert(1)></svg>" in page.words()


def test_the_page_has_no_scripts_and_no_external_resources(read, everything):
    html = render_run_page(everything())
    page = read(html)
    assert set(re.findall(r"[\w=\"]*https?://[^\"\s<]*", html)) == {'xmlns="http://www.w3.org/2000/svg'}
    assert not {"script", "link", "iframe", "object", "base", "form"} & {tag for tag, _ in page.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert all(a["src"].startswith("data:image/") for _, a in page.elements if "src" in a)
    assert not re.search(r"url\(|@import|@font-face", html)
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_page_has_light_and_dark_colours_and_a_viewport(everything):
    html = render_run_page(everything())
    assert "@media (prefers-color-scheme: dark)" in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    light, dark = (set(re.findall(r"(--[\w-]+):", part)) for part in html.split("@media (prefers", 2)[:2])
    assert light == dark
    assert set(re.findall(r"var\((--[\w-]+)", html)) <= light


def test_queries_are_grouped_by_direction(everything):
    contents = everything()
    swapped = replace(contents, best_queries=contents.best_queries[::-1])
    assert render_run_page(swapped) == render_run_page(contents)


def test_the_output_is_deterministic(tmp_path, everything):
    write_run_page(tmp_path / "one.html", everything())
    write_run_page(tmp_path / "two.html", everything())
    first = (tmp_path / "one.html").read_bytes()
    assert first == (tmp_path / "two.html").read_bytes()
    assert first.startswith(b"<!doctype html>\n")


def test_a_file_name_that_is_not_utf8_can_be_written(tmp_path, everything):
    write_run_page(tmp_path / "page.html", everything("caf\udce9.jpg"))
    assert "caf?.jpg" in (tmp_path / "page.html").read_text("utf-8")


def test_many_notices_are_collapsed(read):
    events = [f"skipped image {i}" for i in range(9)]
    page = read(render_run_page(RunPage("t", notices=events)))
    assert all(event in page.words() for event in events)
    assert "and 3 more" in page.words()
    assert "more" not in read(render_run_page(RunPage("t", notices=events[:6]))).words()


def test_the_recipe_keeps_its_lines(read):
    recipe = 'title = "x"\n\n[[stage]]\nepochs = 3  # <- few\n'
    page = read(render_run_page(RunPage("t", recipe=recipe)))
    assert "".join(text for tag, text in page.texts if tag == "code") == recipe


def test_the_table_has_values_intervals_and_chance(everything, cells):
    words = cells(everything())
    assert "Direction R@1 R@5 R@10 Median rank Mean rank" in words
    assert (
        "Image to text 45.2 41.0 – 49.4 77.4 88.6 85.8 – 91.2 2 2 – 3 1,234.6 1,001.0 – 1,500.0 "
        "chance 0.2 1.0 2.0 Text to image 33.9 31.4 – 36.3 – – 3.5 9.8 rsum 395.0 380.2 – 409.4" in words
    )
    assert words.count("chance") == 1


def test_map_is_a_column_if_a_direction_has_it(read, everything, cells):
    def columns(contents):
        elements = read(render_run_page(contents)).elements
        return sum(tag == "th" and a.get("scope") == "col" for tag, a in elements), [
            int(a["colspan"]) for tag, a in elements if tag == "td" and "colspan" in a
        ]

    plain = RunPage("t", recall=everything().recall, rsum=Measure(1.0))
    first, second = plain.recall
    both = replace(plain, recall=[replace(first, average_precision=Measure(31.25, 29.04, 33.4)), second])
    words = cells(both)
    assert "and mean average precision (mAP) in percent. Below each" in words
    assert "Direction R@1 R@5 R@10 mAP Median rank Mean rank" in words
    assert "88.6 85.8 – 91.2 31.2 29.0 – 33.4 2 2 – 3" in words
    assert "Text to image 33.9 31.4 – 36.3 – – – 3.5 9.8" in words
    assert (columns(both), columns(plain)) == ((7, [6]), (6, [5]))  # rsum reaches below all columns but the first
    reach = [a["width"] for _, a in read(render_run_page(both)).elements if a.get("class") == "reach"]
    assert reach == ["45.2", "77.4", "88.6", "31.25", "33.9"]
    assert "mAP" not in render_run_page(plain)
    assert "precision" not in cells(plain)


def test_columns_are_the_cutoffs_that_were_measured(cells):
    row = RecallRow("image to text", {100: Measure(3.0), 20: Measure(2.0)}, Measure(1.0), Measure(1.0))
    assert "R@20 R@100 Median" in cells(RunPage("t", recall=[row]))


def test_nan_and_infinity_are_dashes(cells):
    row = RecallRow("image to text", {1: Measure(math.nan, math.nan, math.nan)}, Measure(math.inf), Measure(math.nan))
    words = cells(RunPage("t", recall=[row], rsum=Measure(math.nan)))
    assert "Image to text – – – rsum –" in words
    assert not re.search(r"\b(nan|inf)\b", render_run_page(RunPage("t", recall=[row])))


def test_a_bar_is_as_long_as_its_recall(read, everything):
    page = read(render_run_page(everything()))
    reach = [a["width"] for _, a in page.elements if a.get("class") == "reach"]
    assert reach == ["45.2", "77.4", "88.6", "33.9", "12.5", "20.0"]  # of phrases those of R@1
    between = [(float(a["x"]), float(a["width"])) for _, a in page.elements if a.get("class") == "between"]
    assert between[0] == pytest.approx((41.04, 8.36))
    assert len(between) == 4


def test_correct_answers_have_marks(read, everything):
    contents = everything()
    right, wrong = "correct", "incorrect"
    best = read(render_run_page(RunPage("t", best_queries=contents.best_queries)))
    assert best.marks() == [wrong, right, wrong, wrong, wrong, right, wrong, wrong, wrong, wrong]
    assert "first correct image at rank 2" in " ".join(best.words().split())
    assert "correct text ranked first" in best.words()
    assert read(render_run_page(RunPage("t", questions=contents.questions))).marks() == []


def test_the_first_correct_answer_is_shown_if_it_is_not_listed(read, everything):
    contents = everything()
    worst = read(render_run_page(RunPage("t", worst_queries=contents.worst_queries)))
    assert worst.marks() == ["incorrect", "correct"] * 2
    words = " ".join(worst.words().split())
    assert "first correct image at rank 57" in words
    assert "0.010 at rank 57" in words
    assert "first correct text at rank 1,204" in words
    assert "own words 0.020" in words
    without = [replace(example, first_correct=None) for example in contents.worst_queries]
    assert read(render_run_page(RunPage("t", worst_queries=without))).marks() == ["incorrect", "incorrect"]


def test_scores_pictures_and_names_belong_together(read):
    answers = [Answer("one.jpg", 0.51, None, "data:image/png;base64,AAAA"), Answer("two.jpg", -0.25)]
    page = read(render_run_page(RunPage("t", questions=[Question("dogs", answers)])))
    assert [(a["src"], a["alt"]) for tag, a in page.elements if tag == "img"] == [(answers[0].picture, "one.jpg")]
    assert " ".join(page.words().split()).endswith("dogs 0.510 one.jpg no picture \u22120.250 two.jpg")


def test_each_word_is_below_its_picture_with_its_cosine(read, picture):
    words = [AttendedWord("dogs", picture, 0.614), AttendedWord("run", picture)]
    page = read(
        render_run_page(RunPage("t", attention=AttentionSection("how", [AttendedPhoto("a.jpg", picture, words)])))
    )
    assert "how a.jpg dogs 0.61 run" in " ".join(page.words().split())
    assert [a["alt"] for tag, a in page.elements if tag == "img"][1:] == [
        "what “dogs” attends to",
        "what “run” attends to",
    ]


def test_phrases_are_listed_by_kind_and_drawn_in_their_colours(read, located, picture):
    page = read(render_run_page(RunPage("t", phrases=located("a man", picture))))
    words = " ".join(page.words().split())
    assert "Kind Phrases R@1 R@5 Ceiling all 1,200 12.5 10.0 – 15.0 30.0 80.0 70.0 – 90.0" in words
    assert "a man 7 20.0 40.0 60.0 Sum 42.5 40.0 – 45.0" in words
    assert "Found a man A a man . a man 0.75 two no region" in words
    assert page.marks() == ["correct", "incorrect"]
    rects = [a for _, a in page.elements if a.get("class") in ("annotated", "predicted")]
    assert [(a["class"], a["x"], a["y"], a["width"], a["height"]) for a in rects] == [
        ("annotated", "1.0", "9.0", "21.0", "31.0"),
        ("predicted", "0.0", "10.5", "20.0", "30.0"),
        ("annotated", "50.0", "0.0", "10.0", "10.0"),
    ]
    classes = [a["class"] for _, a in page.elements if "hue-" in a.get("class", "")]
    assert classes == ["hue-0", "hue-1", "phrase hue-0", "swatch hue-0", "swatch hue-1"]
    assert ("100", "50") in [(a.get("width"), a.get("height")) for tag, a in page.elements if tag == "img"]


def test_cards_keep_labels_values_texts_and_pictures_together(read, picture):
    texts = [
        CardEntry("GT", "own text"),
        CardEntry("HN", "other text", "0.26"),
        CardEntry("run", "third", "1,204", True),
    ]
    images = [CardEntry("GT", "own.jpg", picture=picture), CardEntry("HN", "other.jpg", "0.08", False)]
    groups = [
        CardGroup("Texts", [QueryCard("image to text", "a.jpg", texts, picture)]),
        CardGroup("Images", [QueryCard("text to image", "a dog", images)]),
        CardGroup("Nothing to show", []),
    ]
    page = read(render_run_page(RunPage("t", hard_negatives=HardNegativesSection("how to read", groups))))
    words = " ".join(page.words().split())
    assert words.endswith(
        "Hardest negatives in a batch how to read Texts a.jpg GT own text HN [0.26] other text run [1,204] third "
        "Images a dog GT own.jpg no picture HN [0.08] other.jpg"
    )
    assert page.marks() == ["correct", "incorrect"]
    assert [a["alt"] for tag, a in page.elements if tag == "img"] == ["a.jpg", "own.jpg"]


def test_tiny_percentages_are_not_shown_as_zero(cells):
    rows = [
        BatchNegativesRow("image to text", 128, 0.9, 0.0000015, Measure(0.0, 0.0, 0.003)),
        BatchNegativesRow("text to image", 6905, 0.999, 0.001, Measure(0.01234, 0.01, 0.015)),
        BatchNegativesRow("text to image", 2, 0.5, 0.5, Measure(0.49)),
    ]
    words = cells(RunPage("t", batch_negatives=rows))
    assert "Direction Batch Percentile Predicted Measured" in words
    assert "Image to text 128 pairs 90th < 0.01 0.00 0.00 – 0.30" in words
    assert "Text to image 6,905 pairs 99.9th 0.10 1.23 1.00 – 1.50" in words
    assert words.endswith("Text to image 2 pairs 50th 50.00 49.00")


def test_words_are_coloured_by_relative_importance(read, weighed, picture):
    page = read(
        render_run_page(
            RunPage("t", word_importance=WordImportanceSection("how", [weighed("dog", picture), weighed("cat", None)]))
        )
    )
    coloured = [(a["class"], a["style"], a["title"]) for _, a in page.elements if "style" in a]
    helps, harms = ("positive top", "--share: 100%", "+0.0712"), ("negative", "--share: 50%", "\u22120.0356")
    assert coloured == [helps, harms] * 2
    assert [text for tag, text in page.texts if tag == "s"] == ["zebra dog", "zebra cat"]
    assert "no picture" in page.words()


def test_score_distributions_have_the_area_its_interval_and_both_means(everything, cells):
    words = cells(RunPage("t", score_distributions=everything().score_distributions))
    assert "Shared area S 0.1633 0.1500 – 0.1800" in words
    assert "Mean score of positive pairs 0.2405 Mean score of negative pairs \u22120.0237" in words


def test_heat_maps_have_their_means_or_the_note_explains_why_there_are_none(read, everything, picture):
    page = read(render_run_page(RunPage("t", correlations=everything().correlations)))
    assert "Before mean absolute correlation 0.420" in re.sub(r"\s+", " ", page.words())
    assert [a["src"] for tag, a in page.elements if tag == "img"] == [picture, picture]
    alone = read(render_run_page(RunPage("t", correlations=CorrelationSection("no weights"))))
    assert "no weights" in alone.words()
    assert not [tag for tag, _ in alone.elements if tag in ("img", "figure")]
