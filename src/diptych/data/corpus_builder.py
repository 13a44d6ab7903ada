"""The gathering of rows that the formats share: what is wrong with a row is noted, and no other row moves."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from diptych.data.corpus import SPLITS, Corpus, Problem
from diptych.data.images import PictureFile
from diptych.errors import DataError, did_you_mean, location

SPLIT_NAMES = {**{name: name for name in SPLITS}, "dev": "val", "valid": "val", "validation": "val"}


class CorpusBuilder:
    """Rows on their way to a corpus: what is wrong with one becomes a Problem, and no other row moves."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._problems: list[Problem] = []
        self._place: tuple[Path, int | None] = (source, None)
        self._seen: dict[tuple[str, Hashable], tuple[Path, int | None]] = {}
        self._groups: dict[Hashable, int] = {}
        self._images: list[tuple[str, PictureFile, int, str]] = []
        self._texts: list[tuple[str, int, str]] = []

    def problem(self, file: Path, row: int | None, message: str) -> None:
        """Note what is wrong at a place."""
        name = str(file).encode(errors="backslashreplace").decode()  # a file name may be any bytes
        self._problems.append(Problem(name, row, message))

    @contextmanager
    def row(self, file: Path, row: int | None) -> Iterator[None]:
        """Read one row: a DataError raised inside leaves it out and is noted as a Problem."""
        self._place = (file, row)
        try:
            yield
        except DataError as reason:
            self.problem(file, row, str(reason))

    def once(self, what: str, key: Hashable) -> None:
        """Refuse this row if an earlier one had the same key."""
        first = self._seen.setdefault((what, key), self._place)
        if first != self._place:
            raise DataError(f"{what} {key!r} is already at {location(*first)}")

    def image(self, name: str, path: Path, group: Hashable, split: str) -> None:
        """Add an image file to a group; a group is whatever compares equal."""
        self._images.append((name, PictureFile(path), self._number(group), split))

    def text(self, text: str, group: Hashable, split: str) -> None:
        """Add a text to a group."""
        self._texts.append((text, self._number(group), split))

    def corpus(self, remedy: str = "") -> Corpus:
        """Everything gathered; without a single image or text a DataError shows the first problem."""
        if not self._images or not self._texts:
            lacking = "text" if self._images else "image"
            more = f"first problem: {self._problems[0]}" if self._problems else remedy
            raise DataError(f"{self._source}: no usable {lacking} in it" + (f"; {more}" if more else ""))
        ids, pictures, image_groups, image_splits = zip(*self._images, strict=True)
        texts, text_groups, text_splits = zip(*self._texts, strict=True)
        return Corpus(
            name=self._source.resolve().name if self._source.is_dir() else self._source.stem,
            image_ids=ids,
            image_groups=np.array(image_groups, np.int64),
            image_splits=np.array(image_splits, np.str_),
            texts=texts,
            text_groups=np.array(text_groups, np.int64),
            text_splits=np.array(text_splits, np.str_),
            pictures=pictures,
            problems=tuple(self._problems),
        )

    def _number(self, group: Hashable) -> int:
        return self._groups.setdefault(group, len(self._groups))


def object_in(value: object) -> dict[str, object]:
    """A JSON object; anything else is a DataError."""
    if not isinstance(value, dict):
        raise DataError(f"a {type(value).__name__}, not a JSON object")
    return value


def id_in(value: object, what: str) -> int | str:
    """A whole number or a string that names something; anything else is a DataError."""
    return value if type(value) is int else filled(value, what)


def filled(value: object, what: str) -> str:
    """A string that says something; anything else is a DataError."""
    if value is None:
        raise DataError(f"no {what}")
    if not isinstance(value, str):
        raise DataError(f"the {what} is of type {type(value).__name__}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a character, or bytes that were kept as they are when reading
        raise DataError(f"the {what} is not valid UTF-8; write it in UTF-8") from None
    if not (value := value.strip()):
        raise DataError(f"the {what} is empty")
    return value


def text_in(value: object) -> str:
    """A text with single blanks for its white space; anything but a string with words is a DataError."""
    return " ".join(filled(value, "text").split())


def split_in(value: object) -> str:
    """One of the corpus' splits; anything else is a DataError that offers the nearest."""
    name = filled(value, "split")
    if name.lower() not in SPLIT_NAMES:
        raise DataError(f"unknown split {name!r}; {did_you_mean(name.lower(), SPLITS)}")
    return SPLIT_NAMES[name.lower()]


def hashed_split(group: str) -> str:
    """The split that a group's name falls in: train for 90 % of all names, val and test for 5 % each."""
    at = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big") / 2**64
    return "train" if at < 0.9 else "val" if at < 0.95 else "test"


def lines_of(file: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 are kept as they are, for `filled` to refuse."""
    try:
        # newline="" ends lines at \n, \r and \r\n only; splitlines would also end them inside texts.
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            return list(lines)
    except OSError as reason:
        raise DataError(f"{file}: cannot be read ({reason.strerror})") from None
