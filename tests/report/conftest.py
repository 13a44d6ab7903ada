"""Shared fixtures: small trained runs and their comparisons, and a page with every section."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from diptych.data.formats.scenes import make_scenes
from diptych.model import Model
from diptych.report.comparison.compare import compare
from diptych.report.elements import Answer, Fact, Measure
from diptych.report.run_page import RunPage, render_run_page
from diptych.report.sections.attention import AttendedPhoto, AttendedWord, AttentionSection
from diptych.report.sections.batch_negatives import BatchNegativesRow
from diptych.report.sections.correlations import CorrelationSection, HeatMap
from diptych.report.sections.examples import ExampleQuery, Question
from diptych.report.sections.hard_negatives import CardEntry, CardGroup, HardNegativesSection, QueryCard
from diptych.report.sections.phrases import (
    KindRow,
    LocalisedPhoto,
    LocalisedPhrase,
    PhotoGroup,
    PhraseSection,
    TextSpan,
)
from diptych.report.sections.recall import RecallRow
from diptych.report.sections.score_distributions import ScoreDistributionsSection
from diptych.report.sections.word_importance import CaptionWord, ExplainedPhoto, WordImportanceSection
from diptych.report.svg_charts import area_chart, bar_chart, line_chart
from diptych.report.thumbnails import thumbnail_uri
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2"]


@pytest.fixture(scope="session")
def corpus():
    return make_scenes(train=20, val=6, test=8, texts=3)


@pytest.fixture(scope="session")
def run(corpus, tmp_path_factory):
    """A tiny run, whose name must be escaped in HTML."""
    overrides = ["model.image.pixels=32", "stage.2.epochs=2", "stage.2.objective.margin=0.3", "text.threshold=1"]
    folder = tmp_path_factory.mktemp("run") / "<b>run"
    return train(load_recipe("scenes", [*SMALL, *overrides]), corpus, folder, device="cpu", workers=0)


@pytest.fixture(scope="session")
def trained(run):
    return Model.load(run, "cpu")


@pytest.fixture(scope="session")
def encoded(trained, corpus):
    """The encoded test split."""
    return trained.encode_corpus(corpus.split("test"))


@pytest.fixture(scope="session")
def compared_corpus():
    return make_scenes(train=24, val=6, test=14, texts=2)


@pytest.fixture(scope="session")
def compared_runs(compared_corpus, tmp_path_factory):
    """Runs that differ in their seed, their vocabulary, the size of their images and their number of epochs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (
        ("plain", ["model.image.pixels=32", "stage.2.epochs=2"]),
        ("<b>other", ["model.image.pixels=16", "stage.2.epochs=1", "text.threshold=1", "seed=5"]),
        ("third|run", ["model.image.pixels=16", "stage.2.epochs=1", "seed=6"]),
    ):
        train(load_recipe("scenes", [*SMALL, *more]), compared_corpus, folder / name, device="cpu", workers=0)
    return [folder / name for name in ("plain", "<b>other", "third|run")]


@pytest.fixture(scope="session")
def three(compared_runs, compared_corpus):
    """The comparison of all three."""
    return compare(compared_runs, compared_corpus, device="cpu")


@pytest.fixture(scope="session")
def two(compared_runs, compared_corpus):
    """The comparison of the first two."""
    return compare(compared_runs[:2], compared_corpus, device="cpu")


VOID = {"meta", "img", "br", "hr", "input", "link"}


class Dot:
    def load(self) -> Image.Image:
        return Image.new("RGB", (4, 4), "red")


PICTURE = thumbnail_uri(Dot())


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
        LocalisedPhrase(text, 0, True, 0.75, (0.0, 10.5, 20.0, 30.0), (1.0, 9.0, 21.0, 31.0)),
        LocalisedPhrase("two", 1, False, None, None, (50.0, 0.0, 10.0, 10.0)),
    ]
    photo = LocalisedPhoto(text, picture, (100, 50), [TextSpan("A "), TextSpan(text, 0), TextSpan(".")], phrases)
    rows = [
        KindRow("all", 1200, {1: Measure(12.5, 10.0, 15.0), 5: Measure(30.0)}, Measure(80.0, 70.0, 90.0)),
        KindRow(text, 7, {1: Measure(20.0), 5: Measure(40.0)}, Measure(60.0)),
    ]
    return PhraseSection(text, rows, Measure(42.5, 40.0, 45.0), [PhotoGroup("Found", [photo])])


def weighed(text: str, picture: str | None) -> ExplainedPhoto:
    """A caption of three words, of which one helps, one harms, and one is unknown."""
    words = [CaptionWord(text, 0.0712, 1.0, True), CaptionWord("of", -0.0356, -0.5), CaptionWord("zebra " + text)]
    return ExplainedPhoto(text, picture, 0.61, words)


def everything(text: str = "words", picture: str = PICTURE) -> RunPage:
    """Contents with all there can be; `text` stands wherever somebody else's text may."""
    images = [Answer(text, 0.9 - i / 10, i == 1, picture) for i in range(5)]
    texts = [Answer(text, 0.9 - i / 10, i == 0) for i in range(5)]
    far_image, far_text = Answer(text, 0.01, True, picture), Answer("own " + text, 0.02, True)
    entries = [CardEntry("GT", text), CardEntry(text, text, text), CardEntry("HN", text, "0.21", False, picture)]
    unknown = [Answer(text, -0.25, None, picture), Answer(text, 0.1)]
    chart = line_chart({text: [(1, 2.0), (2, 3.0)]}, title=text, x_label=text, y_label=text)
    words = [AttendedWord(text, picture, 0.61), AttendedWord("a", picture)]
    areas = area_chart({text: [0.5, 1.5]}, [-1.0, 0.0, 1.0], title=text, x_label=text, y_label=text)
    return RunPage(
        title=text,
        subtitle=text,
        facts=[Fact("Data", text), Fact(text, "500")],
        notices=[f"skipped {text}", *(f"event {i} {text}" for i in range(8))],
        recall=[
            RecallRow(
                "image to text",
                {1: Measure(45.2, 41.04, 49.4), 5: Measure(77.4), 10: Measure(88.6, 85.8, 91.2)},
                Measure(2.0, 2.0, 3.0),
                Measure(1234.56, 1001.0, 1500.0),
                {1: 0.2, 5: 1.0, 10: 2.0},
            ),
            RecallRow("text to image", {1: Measure(33.9, 31.4, 36.3)}, Measure(3.5), Measure(9.8)),
        ],
        rsum=Measure(395.04, 380.2, 409.4),
        phrases=located(text, picture),
        training_charts=[chart],
        questions=[Question(text, unknown)],
        best_queries=[
            ExampleQuery("text to image", 2, images, query_text=text, first_correct=images[1]),
            ExampleQuery("image to text", 1, texts, query_text=text, query_picture=picture, first_correct=texts[0]),
        ],
        worst_queries=[
            ExampleQuery("text to image", 57, [images[0]], query_text=text, first_correct=far_image),
            ExampleQuery("image to text", 1204, [texts[1]], query_text=text, first_correct=far_text),
        ],
        attention=AttentionSection(text, [AttendedPhoto(text, picture, words)]),
        word_importance=WordImportanceSection(text, [weighed(text, picture)]),
        score_distributions=ScoreDistributionsSection(text, areas, Measure(0.1633, 0.15, 0.18), 0.2405, -0.0237),
        correlations=CorrelationSection(text, [HeatMap("Before", picture, 0.42), HeatMap(text, picture, 0.05)]),
        cross_retrieval=bar_chart({text: [1.0, 2.0]}, [text, "more"], title=text, x_label=text, y_label=text),
        hard_negatives=HardNegativesSection(
            text,
            [
                CardGroup(text, [QueryCard("image to text", text, entries[:2], picture)]),
                CardGroup("Images", [QueryCard("text to image", text, entries[2:])]),
            ],
        ),
        batch_negatives=[BatchNegativesRow("image to text", 128, 0.999, 0.8807, Measure(0.9025, 0.89, 0.915))],
        recipe=f"title = '{text}'\n",
    )


def cells(contents: RunPage) -> str:
    return re.sub(r"\s+", " ", Page(render_run_page(contents)).words())


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
