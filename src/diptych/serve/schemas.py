"""Requests and responses of the HTTP API, as the OpenAPI document describes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from diptych.index.entries import EMPTY_QUERY, Filters, Kind, Mode, SearchRequest, column_filters

MAX_CHARACTERS = 1000  # of a query
MAX_HITS = 500
MAX_QUERIES = 64  # in one request
MAX_IMAGES = 16  # in one request
MAX_ID = 2**63 - 1  # SQLite's ids have 64 bits


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(EMPTY_QUERY)
    return text


# The patterns of days and conditions are for the documentation; `Filters` and `column_filters` check them.
Words = Annotated[
    str,
    Field(max_length=MAX_CHARACTERS, description="A query in words", json_schema_extra={"pattern": r"\S"}),
    AfterValidator(_not_blank),
]
Day = Annotated[
    str,
    Field(description="A day, such as 2026-11-16", json_schema_extra={"pattern": "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$"}),
]
Condition = Annotated[str, Field(max_length=2000, description="column=value", json_schema_extra={"pattern": "^[^=]+="})]
Name = Annotated[str, Field(max_length=1000)]
Id = Annotated[int, Field(ge=1, le=MAX_ID, description="An entry's id")]


class SearchOptions(BaseModel):
    """The index to search, what to find, and filters; an empty filter lets everything through."""

    model_config = ConfigDict(extra="forbid")

    index: Name = Field("", description="The name of an index; defaults to the first")
    to: Kind = Field("image", description="What to find")
    k: int = Field(20, ge=1, le=MAX_HITS, description="The number of hits")
    folder: Name = Field("", description="Only entries in this folder of the source or below it")
    since: Day = ""
    until: Day = ""
    split: Name = ""

    def column_filters(self) -> tuple[tuple[str, str], ...]:
        """Columns of the source's table and the values that they must have."""
        return ()

    def request(self, without: int | None = None) -> SearchRequest:
        """The same options as the index takes them; a DataError if one is invalid."""
        filters = Filters(
            folder=self.folder or None,
            since=self.since or None,
            until=self.until or None,
            split=self.split or None,
            columns=self.column_filters(),
        )
        return SearchRequest(to=self.to, k=self.k, filters=filters, without=without)


class UrlOptions(SearchOptions):
    """The options in a URL, with columns as column=value."""

    where: list[Condition] = Field(
        [], max_length=20, description="A column of the source's table and its value, as column=value; repeatable"
    )

    def column_filters(self) -> tuple[tuple[str, str], ...]:
        """Columns of the source's table and the values that they must have."""
        return column_filters(self.where)


class TextOptions(SearchOptions):
    """What a search by text has besides."""

    text: Words
    mode: Mode = Field(
        "meaning", description="Find images by the model, by exact words in captions, names and folders, or by both"
    )

    def request(self, without: int | None = None) -> SearchRequest:
        """The same options as the index takes them; a DataError if one is invalid."""
        return replace(super().request(without), mode=self.mode)


class SearchParameters(UrlOptions, TextOptions):
    """A search by text."""


class SimilarParameters(UrlOptions):
    """A search for entries similar to one of the index."""

    id: Id


class SearchBody(TextOptions):
    """A search by text; `where` maps columns of the source's table to their values."""

    model_config = ConfigDict(strict=True)  # unlike a URL, JSON has numbers

    where: dict[Name, Name] = Field({}, max_length=20)

    def column_filters(self) -> tuple[tuple[str, str], ...]:
        """Columns of the source's table and the values that they must have."""
        return tuple(self.where.items())


class BatchBody(BaseModel):
    """Several searches by text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    queries: list[SearchBody] = Field(min_length=1, max_length=MAX_QUERIES)


class LooseBatchBody(BaseModel):
    """The same with searches that are validated one by one, so that a wrong one does not lose the others."""

    model_config = ConfigDict(extra="forbid", strict=True)

    queries: list[Any] = Field(min_length=1, max_length=MAX_QUERIES)


class EncodeBody(BaseModel):
    """Texts and images to encode with the model of an index."""

    model_config = ConfigDict(extra="forbid", strict=True)

    index: Name = Field("", description="The name of an index; defaults to the first")
    texts: list[Words] = Field([], max_length=MAX_QUERIES)
    images: list[str] = Field([], max_length=MAX_IMAGES, description="The bytes of image files in base64")


class EntryAndText(BaseModel):
    """An entry and a text that is compared with it."""

    model_config = ConfigDict(extra="forbid")

    id: Id
    text: Words
    index: Name = ""


class PictureParameters(BaseModel):
    """The index and the size of a picture."""

    model_config = ConfigDict(extra="forbid")

    index: Name = ""
    size: Literal["thumbnail", "large"] = "thumbnail"


class HomeParameters(BaseModel):
    """The images to list: of which index and folder, how many, and after which."""

    model_config = ConfigDict(extra="forbid")

    index: Name = Field("", description="The name of an index; defaults to the first")
    folder: Name = Field("", description="Only images in this folder of the source or below it")
    k: int = Field(60, ge=1, le=MAX_HITS, description="The number of images")
    cursor: str = Field("", max_length=100, description="Where to continue: `next` of the answer before")


class FolderParameters(BaseModel):
    """The folder whose folders are listed; without one, the top of the source."""

    model_config = ConfigDict(extra="forbid")

    index: Name = ""
    parent: Name = ""


class Problem(BaseModel):
    """The error in one sentence."""

    error: str


class EntryAbout(BaseModel):
    """An entry, and the captions of its image."""

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
    captions: list[str]


class FoundEntry(EntryAbout):
    """An entry that was found; `near` are the ids of its near-duplicates."""

    score: float
    stands_out: bool
    near: list[int]


class SearchAnswer(BaseModel):
    """The hits, best first; `message` is a sentence for people, if there is anything to say about the answer."""

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


class ListedImage(EntryAbout):
    """An image and its day: that of its capture, or else of its file, or empty if neither is known."""

    day: str


class HomeAnswer(BaseModel):
    """Images by day, newest first; pass `next` as `cursor` to get those that follow, if it is not null."""

    index: str
    images: list[ListedImage]
    next: str | None


class FolderAbout(BaseModel):
    """A folder: its path in the source, the number of images in it and below, and whether it has folders."""

    path: str
    images: int
    has_folders: bool


class FoldersAnswer(BaseModel):
    """The folders directly in a folder, by name."""

    index: str
    folders: list[FolderAbout]


class BatchProblem(BaseModel):
    """The error of one search in a batch, and the status that the search alone would have been answered with."""

    error: str
    status: int


class BatchAnswer(BaseModel):
    """One answer or error per search, in the order of the searches."""

    answers: list[SearchAnswer | BatchProblem]


class Encoded(BaseModel):
    """The vectors of texts and of images; of a model that encodes an item as a set, several vectors per item."""

    index: str
    texts: list[list[float]] | list[list[list[float]]]
    images: list[list[float]] | list[list[list[float]]]


class IndexAbout(BaseModel):
    """An index, what it holds, and what it supports."""

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
    """All served indexes, the default first."""

    indexes: list[IndexAbout]


class WordAbout(BaseModel):
    """A word and how much the score drops without it; null if the model does not know the word."""

    place: int
    word: str
    importance: float | None


class Explained(BaseModel):
    """The score of a text with an image, and the importance of each word."""

    id: int
    text: str
    score: float
    words: list[WordAbout]


class PlaceAbout(BaseModel):
    """A box (left, top, right, bottom, each from 0 to 1) and its score."""

    box: list[float]
    score: float


class PhrasePlaces(BaseModel):
    """A phrase and its places, best first."""

    phrase: str
    places: list[PlaceAbout]


class Localized(BaseModel):
    """The phrases of a text and their places in an image."""

    id: int
    phrases: list[PhrasePlaces]


class Health(BaseModel):
    """The state of the service, and its problems, if any."""

    status: Literal["ok", "degraded"]
    problems: list[str]
    version: str
    indexes: dict[str, dict[str, Any]]
