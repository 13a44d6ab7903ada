"""How well people say that texts fit images: rows of a text, an image and a grade, higher is better.

A table is CSV, TSV, JSONL or parquet, with the columns `text`, `image` and `grade` (or their usual synonyms, such as
`caption` and `agg_score`). An image is named by its id or its file name; a text by its id, by itself, or by a label
that ends with its id, such as `COCO_val2014:sentid:732091` in the files of CxC. A pair may have several rows, one per
judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers, Problem
from diptych.data.formats.table import COLUMN_NAMES, find_columns, read_records
from diptych.data.parsing import identifier
from diptych.errors import DataError

GradeRow: TypeAlias = "tuple[str, str, float]"  # text, image, grade

_ROLES = {
    "text": COLUMN_NAMES["text"],
    "image": COLUMN_NAMES["image"],
    "grade": ("grade", "agg_score", "rating", "score"),
}


@dataclass(frozen=True, eq=False)
class Grades:
    """`values[k]` is the grade of text `texts[k]` for image `images[k]`; problems are rows that were left out."""

    images: Integers
    texts: Integers
    values: NDArray[np.float64]
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.values)


def read_grades(source: Path | str | Iterable[GradeRow], corpus: Corpus) -> Grades:
    """The grades in a table, or of (text, image, grade) in memory, for images and texts of a corpus.

    A row that cannot be used is left out, and is one of the problems. Raises DataError if no row is left.
    """
    problems: list[Problem] = []
    name = str(source) if isinstance(source, str | Path) else "grades"

    def add_problem(row: int, message: str) -> None:
        problems.append(Problem(name, row, message))

    if isinstance(source, str | Path):
        names, records = read_records(_existing(Path(source)), add_problem)
        columns = find_columns(Path(source), names, _ROLES, _ROLES)
        rows: Iterable[tuple[int, object]] = (
            (row, tuple(values.get(columns[role]) for role in _ROLES)) for row, values in records
        )
    else:
        rows = enumerate(source, 1)
    finder, found = _Finder(corpus), []
    for row, values in rows:
        try:
            found.append(finder.read(values))
        except DataError as reason:
            add_problem(row, str(reason))
    if not found:
        raise DataError(f"{name}: no usable grade in it" + (f"; first problem: {problems[0]}" if problems else ""))
    texts, images, grades = zip(*found, strict=True)
    return Grades(np.array(images), np.array(texts), np.array(grades), tuple(problems))


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise DataError(f"{file}: no such file; name a table with the columns text, image and grade")
    return file


class _Finder:
    """Finds images and texts of a corpus by what people call them."""

    def __init__(self, corpus: Corpus) -> None:
        self._place = f"{'+'.join(sorted(set(corpus.image_splits.tolist())))} of {corpus.name}"
        self._images = {name: row for row, name in enumerate(corpus.image_ids)}
        self._files: dict[str, list[str]] = {}
        for name in corpus.image_ids:
            self._files.setdefault(PurePosixPath(name).name, []).append(name)
        self._text_ids = {name: row for row, name in enumerate(corpus.text_ids or ())}
        self._texts = {text: row for row, text in reversed(list(enumerate(corpus.texts)))}

    def read(self, values: object) -> tuple[int, int, float]:
        """The row of a text, the row of an image, and a grade."""
        if not isinstance(values, tuple | list) or len(values) != len(_ROLES):
            raise DataError("not a text, an image and a grade")
        text, image, grade = values
        return self._text(str(identifier(text, "text"))), self._image(str(identifier(image, "image"))), _grade(grade)

    def _text(self, name: str) -> int:
        if name in self._text_ids:
            return self._text_ids[name]
        row = self._texts.get(" ".join(name.split()), self._text_ids.get(name.rpartition(":")[2]))
        if row is None:
            raise DataError(
                f"no text {name!r} in {self._place}" + ("" if self._text_ids else ", whose texts have no ids")
            )
        return row

    def _image(self, name: str) -> int:
        if name in self._images:
            return self._images[name]
        ids = self._files.get(name, [])
        if len(ids) != 1:
            several = f"; {len(ids)} images have this name: write {ids[0]!r} or another" if ids else ""
            raise DataError(f"no image {name!r} in {self._place}{several}")
        return self._images[ids[0]]


def _grade(value: object) -> float:
    """A finite number, which may be written as a string."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            grade = float(value)
        except (ValueError, OverflowError):
            grade = math.nan
        if math.isfinite(grade):
            return grade
    raise DataError(f"the grade {value!r} is not a finite number")
