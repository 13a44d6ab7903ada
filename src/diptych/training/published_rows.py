"""Finds the recipe that trains a row of a paper's table; the rows themselves are in the recipes.

A row's label in a recipe names its table and its row: `3.17`; several of them: `1.12, 5.2, ensemble of two runs`; or a
table and the row's words: `2b, non-linear, one direction`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from diptych.errors import RecipeError, did_you_mean
from diptych.training.recipe import Row
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe

TABLE = re.compile(r"(?P<table>\d+[a-z]?|[IVX]+)(?:\.(?P<row>\d+))?")
ROMAN = {"I": "1", "II": "2", "III": "3", "IV": "4", "V": "5", "VI": "6", "VII": "7", "VIII": "8", "IX": "9", "X": "10"}


@dataclass(frozen=True)
class PublishedRow:
    """One row of a paper's table, and the recipe that trains it; `row` is its number, its words, or empty."""

    paper: str
    table: str
    row: str
    recipe: str
    figures: Row

    @property
    def label(self) -> str:
        """Table and number, such as `3.17`; the table alone if its rows have no numbers."""
        return f"{self.table}.{self.row}" if self.row.isdigit() else self.table

    def is_in_table(self, table: str) -> bool:
        """Whether the row is in a table; 2 is Tables 2a to 2c, and Roman numerals may be written as numbers."""
        found = self.table.upper()
        return table.upper() in (found, ROMAN.get(found), found.rstrip("ABC"))

    def matches(self, row: str) -> int:
        """How well a row's number or words fit: 3 for all, 2 for the first words, 1 for some of them, 0 for none."""
        wanted, found = row.lower(), self.row.lower()
        if wanted == found or row.isdigit():
            return 3 * (wanted == found)
        return 2 if found.startswith(wanted) else int(wanted in found)


def parse_label(label: str) -> list[tuple[str, str]]:
    """Tables and rows of a label.

    >>> parse_label("1.12, 5.2, ensemble of two runs")
    [('1', '12'), ('5', '2')]
    >>> parse_label("2b, non-linear, one direction")
    [('2b', 'non-linear, one direction')]
    """
    parts = label.split(", ")
    found = []
    while parts and (match := TABLE.fullmatch(parts[0])):
        found.append((match["table"], match["row"]))
        parts.pop(0)
    return [(table, ", ".join(parts) if row is None else row) for table, row in found]


def rows_of(name: str) -> list[PublishedRow]:
    """The rows that a packaged recipe trains, of its own paper and of others."""
    about, folder = load_recipe(name).paper, catalogue().paper_of(name).name
    if about is None:
        return []
    papers = {paper.reference: paper.name for paper in catalogue().papers.values()}
    found = []
    for row in about.row:
        # Figures that a table quotes from a paper without recipes belong to the paper that quotes them.
        paper = papers.get(row.reference or about.reference, folder)
        found += [PublishedRow(paper, table, place, name, row) for table, place in parse_label(row.number)]
    return found


def find_rows(paper: str, table: str | None = None, row: str | None = None) -> list[PublishedRow]:
    """The rows of a paper, of one of its tables, or those that a number or words name.

    A row may have several recipes: an ensemble, or one per dataset.
    """
    catalogued = catalogue()
    if paper not in catalogued.papers:
        raise RecipeError(f"--paper {paper}: no such paper; {did_you_mean(paper, catalogued.papers)}")
    rows = [each for name in catalogued.definitions for each in rows_of(name) if each.paper == paper]
    if not rows:
        raise RecipeError(f"--paper {paper}: has no published tables; see `diptych recipes list {paper}`")
    rows.sort(key=lambda each: (_by_number(each.table), _by_number(each.row)))
    if table is not None:
        choices = ", ".join(dict.fromkeys(each.table for each in rows))
        rows = [each for each in rows if each.is_in_table(table)]
        if not rows:
            raise RecipeError(f"--table {table}: no recipe follows that table of {paper}; choose from {choices}")
    if row is not None:
        known = dict.fromkeys(each.row if each.row.isdigit() else repr(each.row) for each in rows if each.row)
        best = max(each.matches(row) for each in rows)
        rows = [each for each in rows if best and each.matches(row) == best]
        if not rows:
            where = paper if table is None else f"Table {table} of {paper}"
            raise RecipeError(f"--row {row}: no recipe follows that row of {where}; choose from {', '.join(known)}")
    return rows


def _by_number(text: str) -> tuple[int, str]:
    """Sorts by the number that a text begins with, if any, then by the rest."""
    text = ROMAN.get(text, text)
    digits = re.match(r"\d*", text)
    number = digits.group() if digits else ""
    return (int(number) if number else 1000, text[len(number) :])
