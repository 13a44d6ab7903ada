"""Builds a corpus row by row: a row that cannot be used becomes a Problem, and no other row is affected."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import SPLITS, Corpus, Picture, Problem
from diptych.data.images import PictureFile
from diptych.errors import DataError, location


class CorpusBuilder:
    """Collects the images and texts of a source, and the problems of rows that cannot be used."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._problems: list[Problem] = []
        self._location: tuple[Path, int | None] = (source, None)
        self._first_seen: dict[tuple[str, Hashable], tuple[Path, int | None]] = {}
        self._group_numbers: dict[Hashable, int] = {}
        # Columns of numbers, not rows of objects: tables may have ten million texts.
        self._ids: list[str] = []
        self._pictures: list[Picture | None] = []
        self._image_groups, self._text_groups = array("q"), array("q")
        self._image_splits, self._text_splits = array("b"), array("b")
        self._texts: list[str] = []
        self._text_ids: list[str] | None = []  # None once a text has no id
        self._has_source_splits = False

    @contextmanager
    def reading_row(self, file: Path, row: int | None) -> Iterator[None]:
        """Read one row in the block; a DataError raised there becomes a Problem of this row."""
        self._location = (file, row)
        try:
            yield
        except DataError as reason:
            self.add_problem(file, row, str(reason))

    def add_problem(self, file: Path, row: int | None, message: str) -> None:
        """Record a problem of a file, or of one of its rows."""
        name = str(file).encode(errors="backslashreplace").decode()  # a file name may be any bytes
        self._problems.append(Problem(name, row, message))

    def require_unique(self, what: str, key: Hashable) -> None:
        """Raise a DataError if an earlier row had the same key."""
        first = self._first_seen.setdefault((what, key), self._location)
        if first != self._location:
            raise DataError(f"{what} {key!r} is already at {location(*first)}")

    def add_image(
        self, name: str, image: Path | Picture | None, group: Hashable, split: str, *, is_default: bool = False
    ) -> None:
        """Add an image to a group; groups are the same if they compare equal. Without a picture, it has features.

        `is_default` is whether the split is a default because the source names none.
        """
        self._ids.append(name)
        self._pictures.append(PictureFile(image) if isinstance(image, Path) else image)
        self._image_groups.append(self._group_number(group))
        self._image_splits.append(SPLITS.index(split))
        self._has_source_splits |= not is_default

    def add_text(self, text: str, group: Hashable, split: str, identity: object = None) -> None:
        """Add a text to a group; its id, if the source gives it one, is an integer or a string."""
        self._texts.append(text)
        if self._text_ids is not None and isinstance(identity, int | str):
            self._text_ids.append(str(identity))
        else:
            self._text_ids = None
        self._text_groups.append(self._group_number(group))
        self._text_splits.append(SPLITS.index(split))

    def build(self, remedy: str = "") -> Corpus:
        """The corpus of all rows; without any image or text, a DataError with the first problem or the remedy."""
        if not self._ids or not self._texts:
            lacking = "text" if self._ids else "image"
            more = f"first problem: {self._problems[0]}" if self._problems else remedy
            raise DataError(f"{self._source}: no usable {lacking} in it" + (f"; {more}" if more else ""))
        return Corpus(
            name=self._source.resolve().name if self._source.is_dir() else self._source.stem,
            image_ids=tuple(self._ids),
            image_groups=np.array(self._image_groups, np.int64),
            image_splits=_split_names(self._image_splits),
            texts=tuple(self._texts),
            text_groups=np.array(self._text_groups, np.int64),
            text_splits=_split_names(self._text_splits),
            pictures=None if any(picture is None for picture in self._pictures) else self._all_pictures(),
            problems=tuple(self._problems),
            split_origin="source" if self._has_source_splits else "default",
            text_ids=None if self._text_ids is None else tuple(self._text_ids),
        )

    def _all_pictures(self) -> tuple[Picture, ...]:
        return tuple(picture for picture in self._pictures if picture is not None)

    def _group_number(self, group: Hashable) -> int:
        return self._group_numbers.setdefault(group, len(self._group_numbers))


def _split_names(numbers: array[int]) -> NDArray[np.str_]:
    """The names of splits by their numbers, as short as the longest of those that occur."""
    found, row_of = np.unique(np.frombuffer(numbers, np.int8), return_inverse=True)
    return np.array([SPLITS[number] for number in found])[row_of]
