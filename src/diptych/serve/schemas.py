"""What may be asked and what is answered, as OpenAPI tells it."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from diptych.index.entries import Filters, Kind, SearchRequest

CHARACTERS = 1000  # of a query
MOST = 500  # hits
DAY = re.compile("^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")
LARGEST = 2**63 - 1  # of an id, which SQLite counts with 64 bits


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; ask in words, such as 'two dogs on a beach'")
    return text


def _day(day: str) -> str:
    try:
        if DAY.fullmatch(day):
            return str(date.fromisoformat(day)) if day else day
    except ValueError:
        pass
    raise ValueError(f"{day[:100]!r} is not a day; write it as 2026-11-16")


def _condition(condition: str) -> str:
    if condition.find("=") < 1:
        raise ValueError("write a condition as column=value")
    return condition


Words = Annotated[
    str,
    Field(max_length=CHARACTERS, description="A query in words", json_schema_extra={"pattern": r"\S"}),
    AfterValidator(_said),
]
Day = Annotated[
    str,
    Field(description="As 2026-11-16", json_schema_extra={"pattern": DAY.pattern}),
    AfterValidator(_day),
]
Condition = Annotated[
    str,
    Field(max_length=2000, description="column=value", json_schema_extra={"pattern": "^[^=]+="}),
    AfterValidator(_condition),
]
Name = Annotated[str, Field(max_length=1000)]
Id = Annotated[int, Field(ge=1, le=LARGEST, description="An entry's id")]


class Wanted(BaseModel):
    """Which index is asked, for what, and what may be found; an empty filter lets everything through."""

    model_config = ConfigDict(extra="forbid")

    index: Name = Field("", description="An index by its name; the first, unless told")
    to: Kind = Field("image", description="What to find")
    k: int = Field(20, ge=1, le=MOST, description="How many to find")
    folder: Name = Field("", description="Only in this folder of the source, and below it")
    since: Day = ""
    until: Day = ""
    split: Name = ""

    def columns(self) -> tuple[tuple[str, str], ...]:
        """Values that columns of the source's table must have."""
        return ()

    def ask(self, without: int | None = None) -> SearchRequest:
        """The same as an index takes it."""
        filters = Filters(
            folder=self.folder or None,
            since=self.since or None,
            until=self.until or None,
            split=self.split or None,
            columns=self.columns(),
        )
        return SearchRequest(to=self.to, k=self.k, filters=filters, without=without)


class WantedInAddress(Wanted):
    """The same with columns as column=value, as an address can tell them."""

    where: list[Condition] = Field([], max_length=20, description="column=value of the source's table; repeatable")

    def columns(self) -> tuple[tuple[str, str], ...]:
        """Values that columns of the source's table must have."""
        pairs = [condition.partition("=") for condition in self.where]
        return tuple((column, value) for column, _, value in pairs)


class SearchInAddress(WantedInAddress):
    """A query in words."""

    text: Words


class SimilarInAddress(WantedInAddress):
    """Entries like one of the index."""

    id: Id


class SearchBody(Wanted):
    """A query in words; `where` is column: value of the source's table."""

    model_config = ConfigDict(strict=True)  # JSON has numbers, which an address has not

    text: Words
    where: dict[Name, Name] = Field({}, max_length=20)

    def columns(self) -> tuple[tuple[str, str], ...]:
        """Values that columns of the source's table must have."""
        return tuple(self.where.items())


class AboutEntry(BaseModel):
    """A text and an entry that it is held against."""

    model_config = ConfigDict(extra="forbid")

    id: Id
    text: Words
    index: Name = ""


class PictureInAddress(BaseModel):
    """How large a picture shall be."""

    model_config = ConfigDict(extra="forbid")

    index: Name = ""
    size: Literal["thumbnail", "large"] = "thumbnail"


class Problem(BaseModel):
    """What is wrong, in one sentence."""

    error: str


class FoundEntry(BaseModel):
    """An entry that was found; `near` are entries that show the same."""

    id: int
    kind: Kind
    key: str
    image: int | None
    text: str | None
    folder: str
    split: str | None
    taken: str | None
    width: int
    height: int
    columns: dict[str, str]
    score: float
    stands_out: bool
    near: list[int]
    captions: list[str]


class SearchAnswer(BaseModel):
    """The hits, best first; `message` is there where a person should know more."""

    index: str
    text: str | None
    to: Kind
    found: bool
    message: str | None
    unknown: list[str]
    searched: int
    method: Literal["exact", "ivf"]
    milliseconds: float
    hits: list[FoundEntry]


class IndexAbout(BaseModel):
    """An index, what it holds, and what can be asked of it."""

    name: str
    images: int
    texts: int
    model: str
    source_name: str
    localizes: bool
    explains: bool
    splits: list[str]
    folders: list[str]
    columns: list[str]


class Indexes(BaseModel):
    """All indexes that are served, the default first."""

    indexes: list[IndexAbout]


class WordAbout(BaseModel):
    """A word and what the score loses without it; nothing where the model does not know it."""

    place: int
    word: str
    importance: float | None


class Explained(BaseModel):
    """A text's score with an image, and what each of its words is worth."""

    id: int
    text: str
    score: float
    words: list[WordAbout]


class PlaceAbout(BaseModel):
    """A box, left, top, right, bottom from 0 to 1, and its score."""

    box: list[float]
    score: float


class PhrasePlaces(BaseModel):
    """A phrase and where it is, best first."""

    phrase: str
    places: list[PlaceAbout]


class Localized(BaseModel):
    """The phrases of a text and where they are in an image."""

    id: int
    phrases: list[PhrasePlaces]


class Health(BaseModel):
    """Whether all is well; if not, what is wrong."""

    status: Literal["ok", "degraded"]
    problems: list[str]
    version: str
    indexes: dict[str, dict[str, Any]]


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route can answer with, for its documentation."""
    told = {
        400: "The host is not served here",
        403: "Asked by a page of another host",
        404: "No such index or entry",
        408: "The body did not come",
        409: "This index cannot",
        413: "Too large",
        415: "Not what is read here",
        422: "Something in the question is wrong",
        503: "Not now",
    }
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": told[status], "content": schema} for status in (400, 403, *statuses)}
