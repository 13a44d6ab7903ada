"""The types of search: the entries of an index, a request for some of them, and the answer with its hits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, get_args

from diptych.errors import DataError

Kind = Literal["image", "text"]
Mode = Literal["auto", "meaning", "words", "both"]
Fit = Literal["strong", "likely", "possible", "weak"]
Method = Literal["exact", "ivf", "int8", "pq", "approximate"]  # the last is that of a backend which searches by itself

DEFAULT_K = 10  # hits per answer
MAX_MARKED = 100  # images that people want more of, and of those that they want less of
EMPTY_QUERY = "is empty; describe what to look for, such as 'two dogs on a beach'"


@dataclass(frozen=True)
class Entry:
    """An image or a text of an index.

    `key` identifies it in its source: an image's path below the indexed folder, or its id in a corpus. `image` is the
    id of the image to show: the entry's own id, or that of the image a text belongs to. `taken` is the day of an image,
    such as 2026-11-16, and `columns` holds the other columns of the source's table; a text has those of its image.
    `moment` is the second of a video that the image shows; `path` is then the file of the video.
    """

    id: int
    kind: Kind
    key: str
    image: int | None
    text: str | None = None
    path: str | None = None
    folder: str = ""
    split: str | None = None
    taken: str | None = None
    width: int = 0
    height: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    moment: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything a client may know; the location of the file is not part of it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "key": self.key,
            "image": self.image,
            "text": self.text,
            "folder": self.folder,
            "split": self.split,
            "taken": self.taken,
            "width": self.width,
            "height": self.height,
            "columns": dict(self.columns),
            "moment": self.moment,
        }


@dataclass(frozen=True)
class Filters:
    """Restricts a search; a filter that is None or empty lets every entry through.

    `folder` is a folder of the source with everything below it; `since` and `until` are days, both inclusive; `columns`
    are pairs of a column of the source's table and its value; `album` is the id of an album, 0 for the favourites. A
    day that does not exist raises a DataError.
    """

    folder: str | None = None
    since: str | None = None
    until: str | None = None
    split: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    album: int | None = None

    def __post_init__(self) -> None:
        for name, day in (("since", self.since), ("until", self.until)):
            if day is not None:
                _check_day(name, day)


def column_filters(conditions: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Conditions written as column=value, as pairs for `Filters.columns`."""
    pairs = []
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not column or not equals:
            raise DataError(f"where {condition[:100]!r}: write a condition as column=value")
        pairs.append((column, value))
    return tuple(pairs)


def _check_day(name: str, day: str) -> None:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", day, re.ASCII):
            date.fromisoformat(day)
            return
    except ValueError:
        pass
    raise DataError(f"{name} {day[:100]!r}: not a day; write it as 2026-11-16")


@dataclass(frozen=True)
class SearchRequest:
    """What to search for: the kind of entries, how many hits, and filters.

    `without` excludes one entry and its exact copies, for a search for entries similar to it. `excluded` are phrases
    that a hit must not have in its captions or in the picture; a search by text adds those that its text excludes
    (`dog -snow`).
    `added` are words that are added to a search with a picture, such as "at night" (see `query_encoding`).
    `mode` is how a text finds images: by the model, by its exact words in captions, names and folders, or by both;
    "auto" is both if the index has captions or words that were read in pictures, and else meaning.
    `more` and `less` are the ids of images that people want more and less of, with or without a text or an image.
    `cursor` is `Answer.next` of the page before, of a request that is the same otherwise; without it, the best hits are
    returned.
    """

    to: Kind = "image"
    k: int = DEFAULT_K
    filters: Filters = field(default_factory=Filters)
    without: int | None = None
    excluded: tuple[str, ...] = ()
    mode: Mode = "auto"
    cursor: str | None = None
    more: tuple[int, ...] = ()
    less: tuple[int, ...] = ()
    added: str | None = None

    def __post_init__(self) -> None:
        if self.added is not None and not self.added.strip():
            raise DataError(f"the added text {EMPTY_QUERY}")
        if self.mode not in get_args(Mode):
            raise DataError(f"mode {self.mode!r}: choose one of {', '.join(get_args(Mode))}")


@dataclass(frozen=True)
class Hit:
    """An entry that was found, and its score; `near` are the ids of its near-duplicates, which it represents.

    `probability` is that of the text describing the photo, and `fit` the same in words (see `index.relevance`); both
    are None for a hit that is not judged.
    """

    entry: Entry
    score: float
    fit: Fit | None = None
    probability: float | None = None
    near: tuple[int, ...] = ()

    @property
    def stands_out(self) -> bool:
        """Whether the hit fits the query; one that is not judged does."""
        return self.fit != "weak"

    def to_json(self) -> dict[str, Any]:
        """The entry with its score."""
        return {
            **self.entry.to_json(),
            "score": self.score,
            "fit": self.fit,
            "probability": self.probability,
            "stands_out": self.stands_out,
            "near": list(self.near),
        }


@dataclass(frozen=True)
class Answer:
    """The hits, best first.

    `found` is whether any of them stands out, and `searched` the number of entries that passed the filters.
    `unknown_words` are the words of a text query that the model does not know, and `suggestion` is the text with
    mistyped words corrected, if any. `words_exist` says of an answer by meaning that found nothing whether images have
    the words of the text in their names, folders or captions. `message` is a sentence for people, if there is anything
    to say about the answer as a whole. `next` is the cursor of the next page, if there is one.
    """

    hits: tuple[Hit, ...]
    found: bool
    searched: int
    method: Method = "exact"
    unknown_words: tuple[str, ...] = ()
    suggestion: str | None = None
    words_exist: bool = False
    message: str | None = None
    next: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The hits and how they were found; the names of the fields do not change."""
        return {
            "found": self.found,
            "searched": self.searched,
            "method": self.method,
            "next": self.next,
            "suggestion": self.suggestion,
            "words_exist": self.words_exist,
            "hits": [hit.to_json() for hit in self.hits],
        }
