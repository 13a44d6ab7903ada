"""Requests of the HTTP API, as the OpenAPI document describes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from diptych.index.entries import Filters, Kind, Mode, SearchRequest, column_filters
from diptych.serve.schemas.fields import (
    MAX_CHOSEN,
    MAX_HITS,
    MAX_IMAGES,
    MAX_QUERIES,
    AlbumId,
    Condition,
    Cursor,
    Day,
    Id,
    Ids,
    IndexName,
    Name,
    Words,
)


class FilterOptions(BaseModel):
    """The index, and filters; an empty filter lets everything through."""

    model_config = ConfigDict(extra="forbid")

    index: IndexName = ""
    folder: Name = Field("", description="Only images in this folder of the source or below it")
    since: Day = Field("", description="Only images of this day, such as 2026-11-16, or later")
    until: Day = Field("", description="Only images of this day or earlier")
    split: Name = Field("", description="Only images of this split of the source")
    album: AlbumId | None = Field(None, description="Only images of this album; 0 is the favourites")

    def column_filters(self) -> tuple[tuple[str, str], ...]:
        """Columns of the source's table and the values that they must have."""
        return ()

    def filters(self) -> Filters:
        """The filters as the index takes them; a DataError if one is invalid."""
        return Filters(
            folder=self.folder or None,
            since=self.since or None,
            until=self.until or None,
            split=self.split or None,
            columns=self.column_filters(),
            album=self.album,
        )


class UrlFilters(FilterOptions):
    """The filters in a URL, with columns as column=value."""

    where: list[Condition] = Field(
        [], max_length=20, description="A column of the source's table and its value, as column=value; repeatable"
    )

    def column_filters(self) -> tuple[tuple[str, str], ...]:
        """Columns of the source's table and the values that they must have."""
        return column_filters(self.where)


class SearchOptions(FilterOptions):
    """The index to search, what to find, and filters."""

    to: Kind = Field("image", description="What to find")
    k: int = Field(20, ge=1, le=MAX_HITS, description="The number of hits")
    cursor: Cursor = ""

    def request(self, without: int | None = None) -> SearchRequest:
        """The same options as the index takes them; a DataError if one is invalid."""
        return SearchRequest(to=self.to, k=self.k, filters=self.filters(), without=without, cursor=self.cursor or None)


class TextOptions(SearchOptions):
    """Options of a search by text; `more` and `less` are images that the hits should and should not resemble."""

    text: Words | None = Field(None, description="A query in words", examples=["two dogs on a beach"])
    mode: Mode = Field(
        "auto",
        description="Find images by meaning, by exact words in captions, names, folders and pictures, or by both; "
        "auto is both if the index has captions or words in pictures, and else meaning",
    )
    more: Ids = Field([], description="The ids of images to find more like them")
    less: Ids = Field([], description="The ids of images to find less like them")

    @model_validator(mode="after")
    def _has_something_to_find(self) -> Self:
        if self.text is None and not self.more:
            raise ValueError("text is missing; describe what to look for, or name images to find more like them")
        return self

    def request(self, without: int | None = None) -> SearchRequest:
        """The same options as the index takes them; a DataError if one is invalid."""
        return replace(super().request(without), mode=self.mode, more=tuple(self.more), less=tuple(self.less))


class SearchParameters(UrlFilters, TextOptions):
    """A search by text."""


class PictureOptions(UrlFilters, SearchOptions):
    """Options of a search with a picture: words that are added to it, such as "at night"."""

    text: Words | None = Field(None, description="Words that are added to the picture, such as: at night")

    def request(self, without: int | None = None) -> SearchRequest:
        """The same options as the index takes them; a DataError if one is invalid."""
        return replace(super().request(without), added=self.text)


class SimilarParameters(PictureOptions):
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

    index: IndexName = ""
    texts: list[Words] = Field([], max_length=MAX_QUERIES, examples=[["two dogs on a beach", "a red car"]])
    images: list[str] = Field([], max_length=MAX_IMAGES, description="The bytes of image files in base64")


class EntryParameters(BaseModel):
    """The index of an entry."""

    model_config = ConfigDict(extra="forbid")

    index: IndexName = ""


class OriginalParameters(EntryParameters):
    """The index of an entry, and whether its file is to be shown by the browser."""

    inline: bool = Field(False, description="Show it in the browser; a format that browsers cannot show becomes a JPEG")


class AlbumBody(BaseModel):
    """The name of an album; the rules of the index decide whether it is valid."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name


class ChosenBody(BaseModel):
    """Images by their ids; the id of a text stands for its image."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: list[Id] = Field(min_length=1, max_length=MAX_CHOSEN)


class FavouritesBody(ChosenBody):
    """Images, and whether they are favourites from now on."""

    favourite: bool


class ExportBody(ChosenBody):
    """Images, and how they are delivered."""

    form: Literal["zip", "list"] = Field("zip", description="Their files in a ZIP, or a list of their paths or keys")


class RevealBody(BaseModel):
    """The image whose file is to be shown in its folder."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Id


class EntryAndText(BaseModel):
    """An entry and a text that is compared with it."""

    model_config = ConfigDict(extra="forbid")

    id: Id
    text: Words
    index: IndexName = ""


class PictureParameters(BaseModel):
    """The index and the size of a picture."""

    model_config = ConfigDict(extra="forbid")

    index: IndexName = ""
    size: Literal["thumbnail", "large"] = "thumbnail"


class HomeParameters(UrlFilters):
    """The images to list: of which index, filtered, how many, and after which."""

    k: int = Field(60, ge=1, le=MAX_HITS, description="The number of images")
    cursor: Cursor = ""


class ExamplesParameters(BaseModel):
    """The index that examples of queries are made from."""

    model_config = ConfigDict(extra="forbid")

    index: IndexName = ""


class FolderParameters(BaseModel):
    """The folder whose folders are listed; without one, the top of the source."""

    model_config = ConfigDict(extra="forbid")

    index: IndexName = ""
    parent: Name = ""
