"""The elements that several sections of a page share: facts, measured values and answers to queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

DirectionName = Literal["image to text", "text to image"]


@dataclass(frozen=True)
class Fact:
    """One line of the page's header, such as the number of images."""

    name: str
    value: str


@dataclass(frozen=True)
class Measure:
    """A measured value and the bounds of its 95% interval, if any."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both bounds of the interval, or None if either is missing or not finite."""
        if self.low is None or self.high is None or not math.isfinite(self.low + self.high):
            return None
        return self.low, self.high


@dataclass(frozen=True)
class Answer:
    """A retrieved image or text with its score.

    `picture` is a data: URI for an image that has a picture. `correct` is None if the correct answer is unknown, as for
    a question that was made up.
    """

    caption: str
    score: float
    correct: bool | None = None
    picture: str | None = None
