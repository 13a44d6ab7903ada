from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.report.curves import area_chart, bar_chart, line_chart
from diptych.report.page import (
    Answer,
    AttendedPhoto,
    AttentionSection,
    Card,
    Cards,
    CardSection,
    Contents,
    CorrelationSection,
    Direction,
    Example,
    ExplainedPhoto,
    Fact,
    FoundPhrase,
    HeatMap,
    KindRow,
    Labelled,
    LocatedPhoto,
    Measure,
    PhotoGroup,
    PhraseSection,
    Piece,
    Question,
    SamplingRow,
    SeparationSection,
    WeighedWord,
    Word,
    WordsSection,
    render,
    write_page,
)
from diptych.report.pictures import thumbnail

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</title></style><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' onload='alert(1)",
    "</code></pre></details><h1>",
    "{{ contents.title }}{% raw %}{# #}",
    "a & b &lt; &amp; <!-- -->",
    "javascript:alert(1)",
]
VOID = {"meta", "img", "br", "hr", "input", "link"}


class Dot:
    def load(self) -> Image.Image:
        return Image.new("RGB", (4, 4), "red")


PICTURE = thumbnail(Dot())


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, the text in each, and whether tags balance."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # the innermost element and its text
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1], data))

    def shape(self) -> list[tuple[str, list[str]]]:
        return [(tag, list(attributes)) for tag, attributes in self.elements]

    def words(self) -> str:
        return " ".join(text.strip() for tag, text in self.texts if tag != "style")

    def identities(self) -> set[str]:
        return {attributes["id"] for _, attributes in self.elements if "id" in attributes}

    def marks(self) -> list[str]:
        return [a["aria-label"] for _, a in self.elements if a.get("class", "").startswith("mark ")]


def located(text: str, picture: str) -> PhraseSection:
    """Phrase localisation of two kinds, with a photo of two phrases; `text` stands where somebody else's may."""
    phrases = [
        FoundPhrase(text, 0, True, 0.75, (0.0, 10.5, 20.0, 30.0), (1.0, 9.0, 21.0, 31.0)),
        FoundPhrase("two", 1, False, None, None, (50.0, 0.0, 10.0, 10.0)),
    ]
    photo = LocatedPhoto(text, picture, (100, 50), [Piece("A "), Piece(text, 0), Piece(".")], phrases)
    rows = [
        KindRow("all", 1200, {1: Measure(12.5, 10.0, 15.0), 5: Measure(30.0)}, Measure(80.0, 70.0, 90.0)),
        KindRow(text, 7, {1: Measure(20.0), 5: Measure(40.0)}, Measure(60.0)),
    ]
    return PhraseSection(text, rows, Measure(42.5, 40.0, 45.0), [PhotoGroup("Found", [photo])])


def weighed(text: str, picture: str | None) -> ExplainedPhoto:
    """A caption of three words, of which one helps, one harms, and one is unknown."""
    words = [WeighedWord(text, 0.0712, 1.0, True), WeighedWord("of", -0.0356, -0.5), WeighedWord("zebra " + text)]
    return ExplainedPhoto(text, picture, 0.61, words)


def everything(text: str = "words", picture: str = PICTURE) -> Contents:
    """Contents with all there can be; `text` stands wherever somebody else's text may."""
    images = [Answer(text, 0.9 - i / 10, i == 1, picture) for i in range(5)]
    texts = [Answer(text, 0.9 - i / 10, i == 0) for i in range(5)]
    unknown = [Answer(text, -0.25, None, picture), Answer(text, 0.1)]
    chart = line_chart({text: [(1, 2.0), (2, 3.0)]}, title=text, x_label=text, y_label=text)
    words = [Word(text, picture, 0.61), Word("a", picture)]
    areas = area_chart({text: [0.5, 1.5]}, [-1.0, 0.0, 1.0], title=text, x_label=text, y_label=text)
    return Contents(
        title=text,
        subtitle=text,
        facts=[Fact("Data", text), Fact(text, "500")],
        events=[f"skipped {text}", *(f"event {i} {text}" for i in range(8))],
        directions=[
            Direction(
                "image to text",
                {1: Measure(45.2, 41.04, 49.4), 5: Measure(77.4), 10: Measure(88.6, 85.8, 91.2)},
                Measure(2.0, 2.0, 3.0),
                Measure(1234.56, 1001.0, 1500.0),
                {1: 0.2, 5: 1.0, 10: 2.0},
            ),
            Direction("text to image", {1: Measure(33.9, 31.4, 36.3)}, Measure(3.5), Measure(9.8)),
        ],
        rsum=Measure(395.04, 380.2, 409.4),
        phrases=located(text, picture),
        curves=[chart],
        questions=[Question(text, unknown)],
        best=[
            Example("text to image", 2, images, query_text=text, truth=images[1]),
            Example("image to text", 1, texts, query_text=text, query_picture=picture, truth=texts[0]),
        ],
        worst=[
            Example("text to image", 57, [images[0]], query_text=text, truth=Answer(text, 0.01, True, picture)),
            Example("image to text", 1204, [texts[1]], query_text=text, truth=Answer("own " + text, 0.02, True)),
        ],
        attention=AttentionSection(text, [AttendedPhoto(text, picture, words)]),
        words=WordsSection(text, [weighed(text, picture)]),
        separation=SeparationSection(text, areas, Measure(0.1633, 0.15, 0.18), 0.2405, -0.0237),
        correlation=CorrelationSection(text, [HeatMap("Before", picture, 0.42), HeatMap(text, picture, 0.05)]),
        cross=bar_chart({text: [1.0, 2.0]}, [text, "more"], title=text, x_label=text, y_label=text),
        negatives=CardSection(
            text,
            [
                Cards(text, [Card("image to text", text, [Labelled("GT", text), Labelled(text, text, text)], picture)]),
                Cards("Images", [Card("text to image", text, [Labelled("HN", text, "0.21", False, picture)])]),
            ],
        ),
        sampling=[SamplingRow("image to text", 128, 0.999, 0.8807, Measure(0.9025, 0.89, 0.915))],
        recipe=f"title = '{text}'\n",
    )


def test_everything_is_there_and_well_formed():
    page = Page(render(everything()))
    sections = {"events", "recall", "curves", "questions", "best", "worst", "negatives", "sampling", "recipe"}
    sections |= {"attention", "cross", "phrases", "words", "separation", "correlation"}
    assert page.identities() == sections
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(headings))
    assert [tag for tag, _ in page.elements].count("caption") == 3
    assert all(a.get("alt") for tag, a in page.elements if tag == "img")
    assert all(a.get("scope") in ("row", "col") for tag, a in page.elements if tag == "th")
    labelled = {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a}
    assert labelled <= page.identities()


def test_nothing_leaves_only_the_title():
    page = Page(render(Contents("An empty run")))
    assert page.words() == "An empty run Diptych report An empty run"
    assert not {"section", "table", "img", "dl", "details"} & {tag for tag, _ in page.elements}


@pytest.mark.parametrize(
    ("name", "identity"),
    [("directions", "recall"), ("curves", "curves"), ("phrases", "phrases")]
    + [
        (name, name)
        for name in ("events", "questions", "best", "worst", "attention", "negatives", "cross", "sampling", "recipe")
    ]
    + [(name, name) for name in ("words", "separation", "correlation")],
)
def test_an_empty_part_leaves_its_section_out(name, identity):
    empty = next(field.default for field in fields(Contents) if field.name == name)
    full = everything()
    page = Page(render(replace(full, **{name: empty})))
    assert page.identities() == Page(render(full)).identities() - {identity}


@pytest.mark.parametrize("evil", EVIL)
def test_text_never_becomes_markup(evil):
    page, plain = Page(render(everything(evil))), Page(render(everything()))
    assert page.shape() == plain.shape()
    texts = [text for _, text in page.texts]
    innocent = [text for _, text in plain.texts]
    assert [text.replace(evil, "words") for text in texts] == innocent
    assert sum(evil in text for text in texts) > 25


@given(st.text(min_size=1).filter(str.strip))
def test_no_text_at_all_becomes_markup(text):
    assert Page(render(everything(text))).shape() == Page(render(everything())).shape()


def test_a_picture_address_cannot_leave_its_attribute():
    for evil in EVIL:
        page = Page(render(everything(picture=evil)))
        assert page.shape() == Page(render(everything())).shape()
        assert {a["src"] for tag, a in page.elements if tag == "img"} == {evil}


def test_a_chart_that_is_not_markup_is_shown_as_text():
    page = Page(render(Contents("t", curves=["<svg onload=alert(1)></svg>"])))  # a plain str, not Markup
    assert "<svg onload=alert(1)></svg>" in page.words()


def test_it_needs_nothing_from_outside():
    html = render(everything())
    page = Page(html)
    assert set(re.findall(r"[\w=\"]*https?://[^\"\s<]*", html)) == {'xmlns="http://www.w3.org/2000/svg'}
    assert not {"script", "link", "iframe", "object", "base", "form"} & {tag for tag, _ in page.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert all(a["src"].startswith("data:image/") for _, a in page.elements if "src" in a)
    assert not re.search(r"url\(|@import|@font-face", html)
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_it_is_light_and_dark_and_fits_a_phone():
    html = render(everything())
    assert "@media (prefers-color-scheme: dark)" in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    light, dark = (set(re.findall(r"(--[\w-]+):", part)) for part in html.split("@media (prefers", 2)[:2])
    assert light == dark
    assert set(re.findall(r"var\((--[\w-]+)", html)) <= light


def cells(contents: Contents) -> str:
    return re.sub(r"\s+", " ", Page(render(contents)).words())


def test_the_table_tells_values_intervals_and_chance():
    words = cells(everything())
    assert "Direction R@1 R@5 R@10 Median rank Mean rank" in words
    assert (
        "Image to text 45.2 41.0 – 49.4 77.4 88.6 85.8 – 91.2 2 2 – 3 1,234.6 1,001.0 – 1,500.0 "
        "by chance 0.2 1.0 2.0 Text to image 33.9 31.4 – 36.3 – – 3.5 9.8 rsum 395.0 380.2 – 409.4" in words
    )
    assert words.count("by chance") == 1


def test_map_is_a_column_where_some_direction_has_it():
    def columns(contents):
        elements = Page(render(contents)).elements
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
    reach = [a["width"] for _, a in Page(render(both)).elements if a.get("class") == "reach"]
    assert reach == ["45.2", "77.4", "88.6", "31.25", "33.9"]
    assert "mAP" not in render(plain)
    assert "precision" not in cells(plain)


def test_columns_are_the_cutoffs_that_were_measured():
    row = Direction("image to text", {100: Measure(3.0), 20: Measure(2.0)}, Measure(1.0), Measure(1.0))
    assert "R@20 R@100 Median" in cells(Contents("t", directions=[row]))


def test_what_is_not_a_number_is_a_dash():
    row = Direction("image to text", {1: Measure(math.nan, math.nan, math.nan)}, Measure(math.inf), Measure(math.nan))
    words = cells(Contents("t", directions=[row], rsum=Measure(math.nan)))
    assert "Image to text – – – rsum –" in words
    assert not re.search(r"\b(nan|inf)\b", render(Contents("t", directions=[row])))


def test_a_bar_is_as_long_as_its_recall():
    page = Page(render(everything()))
    reach = [a["width"] for _, a in page.elements if a.get("class") == "reach"]
    assert reach == ["45.2", "77.4", "88.6", "33.9", "12.5", "20.0"]  # of phrases those of R@1
    between = [(float(a["x"]), float(a["width"])) for _, a in page.elements if a.get("class") == "between"]
    assert between[0] == pytest.approx((41.04, 8.36))
    assert len(between) == 4


def test_right_and_wrong_are_told_without_colour():
    contents = everything()
    right, wrong = "right", "wrong"
    best = Page(render(Contents("t", best=contents.best)))
    assert best.marks() == [wrong, right, wrong, wrong, wrong, right, wrong, wrong, wrong, wrong]
    assert "its image came at rank 2" in " ".join(best.words().split())
    assert "a text of its own came first" in best.words()
    assert Page(render(Contents("t", questions=contents.questions))).marks() == []


def test_the_truth_is_shown_where_the_answers_do_not_reach_it():
    contents = everything()
    worst = Page(render(Contents("t", worst=contents.worst)))
    assert worst.marks() == ["wrong", "right", "wrong", "right"]
    words = " ".join(worst.words().split())
    assert "its image came at rank 57" in words
    assert "0.010 at rank 57" in words
    assert "its first own text came at rank 1,204" in words
    assert "own words 0.020" in words
    without = [replace(example, truth=None) for example in contents.worst]
    assert Page(render(Contents("t", worst=without))).marks() == ["wrong", "wrong"]


def test_directions_are_kept_apart_whatever_their_order():
    contents = everything()
    swapped = replace(contents, best=contents.best[::-1])
    assert render(swapped) == render(contents)


def test_scores_pictures_and_names_belong_together():
    answers = [Answer("one.jpg", 0.51, None, "data:image/png;base64,AAAA"), Answer("two.jpg", -0.25)]
    page = Page(render(Contents("t", questions=[Question("dogs", answers)])))
    assert [(a["src"], a["alt"]) for tag, a in page.elements if tag == "img"] == [(answers[0].picture, "one.jpg")]
    assert " ".join(page.words().split()).endswith("dogs 0.510 one.jpg no picture \u22120.250 two.jpg")


def test_many_events_fold_and_few_do_not():
    events = [f"skipped image {i}" for i in range(9)]
    page = Page(render(Contents("t", events=events)))
    assert all(event in page.words() for event in events)
    assert "and 3 more" in page.words()
    assert "more" not in Page(render(Contents("t", events=events[:6]))).words()


def test_each_word_stands_beneath_its_picture_with_its_cosine():
    words = [Word("dogs", PICTURE, 0.614), Word("run", PICTURE)]
    page = Page(render(Contents("t", attention=AttentionSection("how", [AttendedPhoto("a.jpg", PICTURE, words)]))))
    assert "how a.jpg dogs 0.61 run" in " ".join(page.words().split())
    assert [a["alt"] for tag, a in page.elements if tag == "img"][1:] == [
        "what “dogs” looks at",
        "what “run” looks at",
    ]


def test_phrases_are_told_by_kind_and_drawn_in_their_colours():
    page = Page(render(Contents("t", phrases=located("a man", PICTURE))))
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


def test_the_recipe_keeps_its_lines():
    recipe = 'title = "x"\n\n[[stage]]\nepochs = 3  # <- few\n'
    page = Page(render(Contents("t", recipe=recipe)))
    assert "".join(text for tag, text in page.texts if tag == "code") == recipe


def test_the_same_contents_give_the_same_bytes(tmp_path):
    write_page(tmp_path / "one.html", everything())
    write_page(tmp_path / "two.html", everything())
    first = (tmp_path / "one.html").read_bytes()
    assert first == (tmp_path / "two.html").read_bytes()
    assert first.startswith(b"<!doctype html>\n")


def test_a_file_name_that_is_no_utf8_can_be_written(tmp_path):
    write_page(tmp_path / "page.html", everything("caf\udce9.jpg"))
    assert "caf?.jpg" in (tmp_path / "page.html").read_text("utf-8")


def test_cards_keep_labels_values_texts_and_pictures_together():
    texts = [Labelled("GT", "own text"), Labelled("HN", "other text", "0.26"), Labelled("run", "third", "1,204", True)]
    images = [Labelled("GT", "own.jpg", picture=PICTURE), Labelled("HN", "other.jpg", "0.08", False)]
    groups = [
        Cards("Texts", [Card("image to text", "a.jpg", texts, PICTURE)]),
        Cards("Images", [Card("text to image", "a dog", images)]),
        Cards("Nothing to show", []),
    ]
    page = Page(render(Contents("t", negatives=CardSection("how to read", groups))))
    words = " ".join(page.words().split())
    assert words.endswith(
        "Hardest negatives in a batch how to read Texts a.jpg GT own text HN [0.26] other text run [1,204] third "
        "Images a dog GT own.jpg no picture HN [0.08] other.jpg"
    )
    assert page.marks() == ["right", "wrong"]
    assert [a["alt"] for tag, a in page.elements if tag == "img"] == ["a.jpg", "own.jpg"]


def test_sampling_tells_small_shares_as_small_and_not_as_none():
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


def test_words_are_coloured_by_their_share():
    page = Page(render(Contents("t", words=WordsSection("how", [weighed("dog", PICTURE), weighed("cat", None)]))))
    coloured = [(a["class"], a["style"], a["title"]) for _, a in page.elements if "style" in a]
    helps, harms = ("helps most", "--share: 100%", "+0.0712"), ("harms", "--share: 50%", "\u22120.0356")
    assert coloured == [helps, harms] * 2
    assert [text for tag, text in page.texts if tag == "s"] == ["zebra dog", "zebra cat"]
    assert "no picture" in page.words()


def test_separation_tells_the_area_its_interval_and_both_means():
    words = cells(Contents("t", separation=everything().separation))
    assert "Shared area S 0.1633 0.1500 – 0.1800" in words
    assert "Mean score of right pairs 0.2405 Mean score of wrong pairs \u22120.0237" in words


def test_maps_stand_with_their_means_or_a_reason_stands_alone():
    page = Page(render(Contents("t", correlation=everything().correlation)))
    assert "Before mean absolute correlation 0.420" in re.sub(r"\s+", " ", page.words())
    assert [a["src"] for tag, a in page.elements if tag == "img"] == [PICTURE, PICTURE]
    alone = Page(render(Contents("t", correlation=CorrelationSection("no weights"))))
    assert "no weights" in alone.words()
    assert not [tag for tag, _ in alone.elements if tag in ("img", "figure")]
