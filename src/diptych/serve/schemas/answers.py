"""Responses of the HTTP API, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from diptych.index.entries import Fit, Kind


class Problem(BaseModel):
    """The error in one sentence."""

    error: str


class EntryAbout(BaseModel):
    """An entry, and the captions of its image.

    `taken` is the day of the capture or else of the file, by which images are filtered and listed, and `moment` the
    second of a video, if it is a frame.
    """

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
    moment: float | None
    captions: list[str]


class AlbumName(BaseModel):
    """An album by its id."""

    id: int
    name: str


class AlbumAbout(AlbumName):
    """An album; `missing` counts images whose files the index has not found, and `cover` is the image added last."""

    images: int
    missing: int
    cover: int | None


class AlbumsAnswer(BaseModel):
    """All albums: the favourites, whose id is 0, then the others by name."""

    index: str
    albums: list[AlbumAbout]


class AlbumChange(BaseModel):
    """How many images an album has gained or lost."""

    id: int
    changed: int


class EntryDetails(EntryAbout):
    """An image, its file, and the albums that it is in; what is not known is null.

    `taken` is the day of the capture, `day` that or else the day of the file, as `day_source` says, `has_file` whether
    the file is there, and `path` where, for clients on the same machine.
    """

    bytes: int | None
    day: str | None
    day_source: Literal["taken", "file"] | None
    camera: str | None
    latitude: float | None
    longitude: float | None
    words: str | None
    favourite: bool
    albums: list[AlbumName]
    has_file: bool
    path: str | None


class FoundEntry(EntryAbout):
    """An entry that was found; `near` are the ids of its near-duplicates.

    `probability` is that of the text describing the photo, and `fit` the same in words; null if it is not judged.
    """

    score: float
    fit: Fit | None
    probability: float | None
    stands_out: bool
    near: list[int]


class SearchAnswer(BaseModel):
    """The hits, best first; pass `next` as `cursor` to get those that follow, if it is not null.

    `message` is a sentence for people, if there is anything to say about the answer.
    """

    index: str
    text: str | None
    to: Kind
    found: bool
    suggestion: str | None = Field(description="The text with mistyped words corrected")
    words_exist: bool = Field(description="Nothing was found by meaning, but names, folders or captions have the words")
    message: str | None
    unknown: list[str]
    searched: int
    method: Literal["exact", "ivf", "int8", "pq", "approximate"]
    next: str | None
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


class ExamplesAnswer(BaseModel):
    """Examples of queries, made from the index; none if its model has no calibration."""

    index: str
    examples: list[str]


class FolderAbout(BaseModel):
    """A folder: its path, the number of images in it and below (a video is one), and whether it has folders."""

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
