"""A page of everything, and how a browser would read it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from diptych.report.pictures import thumbnail
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
)
from diptych.report.svg_charts import area_chart, bar_chart, line_chart

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


def cells(contents: Contents) -> str:
    return re.sub(r"\s+", " ", Page(render(contents)).words())


@pytest.fixture(scope="session")
def picture():
    return PICTURE


@pytest.fixture(scope="session")
def read():
    return Page


@pytest.fixture(scope="session", name="located")
def located_fixture():
    return located


@pytest.fixture(scope="session", name="weighed")
def weighed_fixture():
    return weighed


@pytest.fixture(scope="session", name="everything")
def everything_fixture():
    return everything


@pytest.fixture(scope="session", name="cells")
def cells_fixture():
    return cells
