"""What an index with a full-text table offers besides vectors: images by the words of their captions and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from diptych.data.corpus import Floats, Integers


@runtime_checkable
class WordStore(Protocol):
    """An index whose words can be searched; an SQLite file is one, a plug-in's index need not be."""

    def described_by(self, phrases: Sequence[str]) -> Integers:
        """The ids of the images with any of these phrases in captions or in the picture, ascending."""
        ...

    def by_words(self, text: str, *, every: bool) -> tuple[Integers, Floats]:
        """The images with these words in captions, name, folder or picture, best first, and their BM25 scores.

        With `every`, an image must have all of the words, and otherwise at least one of them.
        """
        ...

    def with_words(self, text: str) -> Integers:
        """The ids of the images with all of these words, ascending; it takes a fraction of the time of `by_words`."""
        ...

    def has_descriptions(self) -> bool:
        """Whether any image has a caption, or words that were read in it."""
        ...

    def has_word(self, word: str) -> bool:
        """Whether a word, in lower case and without accents, is in captions, names, folders or pictures."""
        ...

    def word_counts(self) -> Mapping[str, int]:
        """All words in captions, names, folders and pictures, with how often each occurs."""
        ...


@runtime_checkable
class PictureWordStore(Protocol):
    """An index, open for writing, that keeps the words in its pictures; an SQLite file is one."""

    def meta(self, name: str) -> Any:
        """A value that the index stores about itself."""
        ...

    def set_meta(self, name: str, value: Any) -> None:
        """Store a value about the index itself."""
        ...

    def unread_pictures(self) -> list[tuple[int, str, float | None]]:
        """The contents that were not read yet, each with the key of one of its images, and its second of a video."""
        ...

    def add_picture_words(self, found: Sequence[tuple[int, str]]) -> None:
        """Note the words of some contents, and make their images searchable by them."""
        ...
