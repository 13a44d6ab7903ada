"""Albums and favourites: images that people have put together, kept in the index by content.

An album names images by the hash of their bytes, so that renaming or indexing again loses nothing, and an image whose
file is missing for a time is in its albums when it returns. The favourites are the album with id 0.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from diptych.errors import DataError, NotFoundError, did_you_mean
from diptych.index.backend import Ids, IndexStore
from diptych.text.control_characters import has_control_characters

FAVOURITES = 0
MAX_NAME = 200  # characters


@dataclass(frozen=True)
class Album:
    """An album; `images` counts those that the index has, and `missing` those whose files it has not found.

    `cover` is the id of the image that was added last, if it has any.
    """

    id: int
    name: str
    images: int
    missing: int
    cover: int | None


class AlbumEditor(Protocol):
    """Changes albums; after an error, such as a NotFoundError for an album or image, nothing is changed."""

    def create(self, name: str) -> int:
        """Create an album, and return its id."""
        ...

    def rename(self, album: int, name: str) -> None:
        """Give an album another name."""
        ...

    def delete(self, album: int) -> None:
        """Delete an album; its images stay in the index."""
        ...

    def add(self, album: int, entries: Ids) -> int:
        """Add images to an album, and return how many it did not have; a text stands for its image."""
        ...

    def remove(self, album: int, entries: Ids) -> int:
        """Remove images from an album, and return how many it had."""
        ...


@runtime_checkable
class AlbumStore(Protocol):
    """What a store also has if it keeps albums; a backend need not support them."""

    @property
    def album_edition(self) -> int:
        """A number that grows with every change of an album by any process."""
        ...

    def albums(self) -> list[Album]:
        """All albums: the favourites, then the others by name."""
        ...

    def album_names(self, image: int) -> dict[int, str]:
        """The albums that an image is in: their names by their ids."""
        ...

    def ids_of(self, names: Sequence[str]) -> dict[str, int]:
        """The ids of images by their keys, or by the paths of their files below the indexed folder."""
        ...

    def edit_albums(self) -> AbstractContextManager[AlbumEditor]:
        """A block whose changes are all made, or none of them; the store may be open for reading only."""
        ...


def album_store(store: IndexStore) -> AlbumStore:
    """The store as one that keeps albums; a DataError if it does not."""
    if not isinstance(store, AlbumStore):
        raise DataError(f"{store.address}: albums need an index in an SQLite file; this backend keeps none")
    return store


def find_album(store: IndexStore, name: str) -> int:
    """The id of the album with this name, without regard to case; the error suggests a similar one."""
    known = {fold(album.name): album for album in album_store(store).albums()}
    if fold(name) not in known:
        hint = did_you_mean(fold(name), known)
        raise NotFoundError(f"no album {name[:MAX_NAME]!r} in the index; {hint}")
    return known[fold(name)].id


def clean_name(name: str) -> str:
    """A valid name without spaces around it; any other raises a DataError."""
    cleaned = unicodedata.normalize("NFC", name).strip()
    if not cleaned:
        raise DataError("the name of an album is empty; give it a name")
    if len(cleaned) > MAX_NAME:
        raise DataError(f"the name of an album has {len(cleaned):,} characters; use at most {MAX_NAME}")
    if has_control_characters(cleaned):
        raise DataError("the name of an album has a line break or another control character; leave it out")
    return cleaned


def fold(name: str) -> str:
    """The form of a name that two albums must not share: names that differ in case only are the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().casefold())
