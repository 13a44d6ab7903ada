"""The report of a run as one HTML file that needs nothing else: no script, no outside address."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from diptych.report.html import render_template, write_template

DirectionName = Literal["image to text", "text to image"]

_ORDER: tuple[DirectionName, ...] = ("text to image", "image to text")


@dataclass(frozen=True)
class Fact:
    """Something to know about the run: what it is called and what it is."""

    name: str
    value: str


@dataclass(frozen=True)
class Measure:
    """A measured value with the 95% interval around it, where there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None where one is unknown."""
        if self.low is None or self.high is None or not math.isfinite(self.low + self.high):
            return None
        return self.low, self.high


@dataclass(frozen=True)
class Direction:
    """One row of the recall table; recalls are in percent, by their K, and so is what chance would reach.

    `precision` is the mean average precision in percent, where it was measured.
    """

    name: DirectionName
    recall: Mapping[int, Measure]
    median_rank: Measure
    mean_rank: Measure
    chance: Mapping[int, float] = field(default_factory=dict)
    precision: Measure | None = None


@dataclass(frozen=True)
class Answer:
    """Something found: an image (a data: URI, or None where it has no picture) or a text, and its score.

    `right` is None where nobody knows, as with a question that was made up.
    """

    caption: str
    score: float
    right: bool | None = None
    picture: str | None = None


@dataclass(frozen=True)
class Question:
    """A sentence and the images found for it, best first."""

    text: str
    answers: Sequence[Answer]


@dataclass(frozen=True)
class Example:
    """One query of the test, its answers best first, and the rank of the first right one.

    A text query has its sentence in `query_text`; an image query has its picture, and its name in `query_text`.
    `truth` is that first right answer; it is shown where the answers do not reach down to its rank.
    """

    direction: DirectionName
    rank: int
    answers: Sequence[Answer]
    query_text: str | None = None
    query_picture: str | None = None
    truth: Answer | None = None


@dataclass(frozen=True)
class Labelled:
    """A text, or an image by its name and picture, under a label such as GT; `value` stands in brackets beside it."""

    label: str
    text: str
    value: str = ""
    right: bool | None = None
    picture: str | None = None


@dataclass(frozen=True)
class Card:
    """A query and what is put beside it: texts beside an image (`query_text` is its name), images beside a text."""

    direction: DirectionName
    query_text: str
    beside: Sequence[Labelled]
    query_picture: str | None = None


@dataclass(frozen=True)
class Cards:
    """Cards under a heading that says how they were chosen."""

    heading: str
    cards: Sequence[Card]


@dataclass(frozen=True)
class CardSection:
    """Groups of cards, and a note that says how to read them."""

    note: str
    groups: Sequence[Cards]


@dataclass(frozen=True)
class Word:
    """A word of a caption, what it attends to as a picture (a data: URI), and its cosine with that where it has one."""

    text: str
    picture: str
    cosine: float | None = None


@dataclass(frozen=True)
class AttendedPhoto:
    """A photo, by its name and a data: URI, with one of its captions word by word."""

    name: str
    picture: str
    words: Sequence[Word]


@dataclass(frozen=True)
class AttentionSection:
    """Photos with what each word attends to, and a note that says how to read them, or why there are none."""

    note: str
    photos: Sequence[AttendedPhoto] = ()


@dataclass(frozen=True)
class KindRow:
    """Phrases of one kind, or all: how many they are, recall by its K in percent, and what regions can reach."""

    name: str
    count: int
    recall: Mapping[int, Measure]
    ceiling: Measure


@dataclass(frozen=True)
class Piece:
    """A stretch of a sentence; of a phrase, with the number of its colour."""

    text: str
    hue: int | None = None


@dataclass(frozen=True)
class FoundPhrase:
    """A phrase, its colour, the box chosen for it, if any, the data's, and the share that both have in common.

    A box is left, top, width, height in pixels of the picture.
    """

    text: str
    hue: int
    right: bool
    overlap: float | None
    box: tuple[float, float, float, float] | None
    truth: tuple[float, float, float, float]


@dataclass(frozen=True)
class LocatedPhoto:
    """A photo, by its name and a data: URI of this width and height, with a sentence and what was found of it."""

    name: str
    picture: str
    size: tuple[int, int]
    pieces: Sequence[Piece]
    phrases: Sequence[FoundPhrase]


@dataclass(frozen=True)
class PhotoGroup:
    """Photos under a heading that says how they were chosen."""

    heading: str
    photos: Sequence[LocatedPhoto]


@dataclass(frozen=True)
class PhraseSection:
    """What phrase localisation measured: a row a kind, the sum of recalls, photos, and how to read them."""

    note: str
    rows: Sequence[KindRow]
    sum: Measure
    groups: Sequence[PhotoGroup] = ()


@dataclass(frozen=True)
class SamplingRow:
    """How often a batch of this size holds no negative from above a percentile, predicted and measured.

    `percentile`, `predicted` and `measured` are shares between 0 and 1; the page tells them in percent.
    """

    direction: DirectionName
    batch: int
    percentile: float
    predicted: float
    measured: Measure


@dataclass(frozen=True)
class SeparationSection:
    """The distributions of the scores of right and wrong pairs as a chart, their means, and the area they share."""

    note: str
    chart: Markup
    shared: Measure
    positive_mean: float
    negative_mean: float


@dataclass(frozen=True)
class HeatMap:
    """A matrix of correlations as a picture (a data: URI), and the mean absolute one beside its diagonal."""

    name: str
    picture: str
    mean: float


@dataclass(frozen=True)
class CorrelationSection:
    """How alike images are before and after training, and a note that says how to read it, or why it is not shown."""

    note: str
    maps: Sequence[HeatMap] = ()


@dataclass(frozen=True)
class WeighedWord:
    """A word, its importance, and its share, from -1 to 1, of the largest; both are None if the model has no such word.

    `most` says that it is one of the most important.
    """

    text: str
    importance: float | None = None
    share: float | None = None
    most: bool = False


@dataclass(frozen=True)
class ExplainedPhoto:
    """An image, by its name and a data: URI, with its score for one of its captions, and that word by word."""

    name: str
    picture: str | None
    score: float
    words: Sequence[WeighedWord]


@dataclass(frozen=True)
class WordsSection:
    """Images with what each word of a caption is worth, and a note that says how to read them."""

    note: str
    photos: Sequence[ExplainedPhoto]


@dataclass(frozen=True)
class Contents:
    """Everything a report shows; what is empty is left out. `curves` and `cross` are charts as SVG."""

    title: str
    subtitle: str = ""
    facts: Sequence[Fact] = ()
    events: Sequence[str] = ()
    directions: Sequence[Direction] = ()
    rsum: Measure | None = None
    phrases: PhraseSection | None = None
    curves: Sequence[Markup] = ()
    questions: Sequence[Question] = ()
    best: Sequence[Example] = ()
    worst: Sequence[Example] = ()
    attention: AttentionSection | None = None
    words: WordsSection | None = None
    negatives: CardSection | None = None
    separation: SeparationSection | None = None
    cross: Markup | None = None
    correlation: CorrelationSection | None = None
    sampling: Sequence[SamplingRow] = ()
    recipe: str = ""

    @property
    def cutoffs(self) -> list[int]:
        """Every K that some direction has a recall for, in order."""
        return sorted({k for direction in self.directions for k in direction.recall})

    @property
    def precise(self) -> bool:
        """Whether some direction has a mean average precision."""
        return any(direction.precision is not None for direction in self.directions)


def write_page(path: Path, contents: Contents) -> None:
    """Write the whole report or nothing."""
    write_template(path, "page.html.j2", contents=contents, directions=_ORDER)


def render(contents: Contents) -> str:
    """The report as HTML; the same contents give the same bytes, and no text of theirs can become markup."""
    return render_template("page.html.j2", contents=contents, directions=_ORDER)
