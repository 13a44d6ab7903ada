"""The report of a run as one HTML file that needs nothing else: no script, no outside address."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from diptych.files import write_text

DirectionName = Literal["image to text", "text to image"]


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
    """One row of the recall table; recalls are in percent, by their K, and so is what chance would reach."""

    name: DirectionName
    recall: Mapping[int, Measure]
    median_rank: Measure
    mean_rank: Measure
    chance: Mapping[int, float] = field(default_factory=dict)


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
class Contents:
    """Everything a report shows; what is empty is left out. `curves` are SVG charts as `line_chart` makes them."""

    title: str
    subtitle: str = ""
    facts: Sequence[Fact] = ()
    events: Sequence[str] = ()
    directions: Sequence[Direction] = ()
    rsum: Measure | None = None
    curves: Sequence[Markup] = ()
    questions: Sequence[Question] = ()
    best: Sequence[Example] = ()
    worst: Sequence[Example] = ()
    recipe: str = ""

    @property
    def cutoffs(self) -> list[int]:
        """Every K that some direction has a recall for, in order."""
        return sorted({k for direction in self.directions for k in direction.recall})


def write_page(path: Path, contents: Contents) -> None:
    """Write the whole report or nothing."""
    write_text(path, render(contents))


def render(contents: Contents) -> str:
    """The report as HTML; the same contents give the same bytes, and no text of theirs can become markup."""
    page = _template().render(contents=contents, directions=("text to image", "image to text"))
    # A file name that is no UTF-8 comes with lone surrogates, which cannot be written.
    return page.encode("utf-8", "replace").decode("utf-8")


@functools.cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["decimals"] = _decimals
    return environment.from_string(resources.files(__package__).joinpath("page.html.j2").read_text("utf-8"))


def _decimals(value: float | None, digits: int) -> str:
    """The number as people write it, and a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", "\u2212")
