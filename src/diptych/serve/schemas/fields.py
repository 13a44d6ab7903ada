"""The types of fields that several requests of the HTTP API have, and their limits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from diptych.index.entries import EMPTY_QUERY, MAX_MARKED

MAX_CHARACTERS = 1000  # of a query
MAX_HITS = 500
MAX_QUERIES = 64  # in one request
MAX_IMAGES = 16  # in one request
MAX_CHOSEN = 10_000  # images in one request
MAX_ID = 2**63 - 1  # SQLite's ids have 64 bits


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(EMPTY_QUERY)
    return text


def _split_commas(values: Any) -> Any:
    """The items of a list, of which one may hold several with commas between them, as in a URL."""
    if not isinstance(values, list):
        return values
    return [part for value in values for part in (value.split(",") if isinstance(value, str) else [value])]


# The patterns of days and conditions are for the documentation; `Filters` and `column_filters` check them.
Words = Annotated[
    str,
    Field(
        max_length=MAX_CHARACTERS,
        description="A query in words",
        examples=["two dogs on a beach"],
        json_schema_extra={"pattern": r"\S"},
    ),
    AfterValidator(_not_blank),
]
Day = Annotated[
    str,
    Field(description="A day, such as 2026-11-16", json_schema_extra={"pattern": "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$"}),
]
Condition = Annotated[str, Field(max_length=2000, description="column=value", json_schema_extra={"pattern": "^[^=]+="})]
Id = Annotated[int, Field(ge=1, le=MAX_ID, description="An entry's id")]
Ids = Annotated[
    list[Id], BeforeValidator(_split_commas), Field(max_length=MAX_MARKED, description="The ids of images of the index")
]
Name = Annotated[str, Field(max_length=1000)]
IndexName = Annotated[str, Field(max_length=1000, description="The name of an index; defaults to the first")]
Cursor = Annotated[str, Field(max_length=100, description="Where to continue: `next` of the answer before")]
AlbumId = Annotated[int, Field(ge=0, le=MAX_ID, description="An album's id; 0 is the favourites")]
