"""Results that print as a plain text table and can be turned into a pandas DataFrame."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from diptych.optional import import_optional


@dataclass(frozen=True)
class TextTable:
    """A title, a header, rows of cells and a caption; a cell may have several lines, and a row may be short.

    >>> rows = [["image to text", "40.0\\n38.1–41.5"], ["rsum", "80.0"]]
    >>> print(TextTable("recalls", ["", "R@1"], rows, "in percent"))
    recalls
    <BLANKLINE>
                         R@1
    image to text       40.0
                   38.1–41.5
    rsum                80.0
    <BLANKLINE>
    in percent
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def __str__(self) -> str:
        lines = [self.header]
        for row in self.rows:
            lines += zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
        widths = [max(map(len, column)) for column in zip_longest(*lines, fillvalue="")]
        body = []
        for first, *others in lines:
            cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=False))
            body.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([self.title, "", *body, *(["", self.caption] if self.caption else [])])


def with_interval(value: float, bounds: tuple[float, float]) -> str:
    """A metric in percent above its interval.

    >>> with_interval(40, (38.14, 41.5))
    '40.0\\n38.1–41.5'
    """
    return f"{value:.1f}\n{bounds[0]:.1f}–{bounds[1]:.1f}"


def bootstrap_caption(level: float, draws: int, unit: str = "groups") -> str:
    """How the intervals of a table were made."""
    return f"{100 * level:g}% intervals from {draws:,} draws of {unit}"


class TabularResult(ABC):
    """A result with a table: `print(result)` shows it, and so does a notebook."""

    @abstractmethod
    def table(self) -> TextTable:
        """What is printed."""

    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The columns of the DataFrame."""

    def to_frame(self) -> Any:
        """The result as a pandas DataFrame; raises DiptychError if pandas is not installed."""
        pandas = import_optional("pandas", "pip install pandas", instead="to_json()")
        return pandas.DataFrame(dict(self.columns()))

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table().title})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
