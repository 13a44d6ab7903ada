"""What an index with a full-text table offers besides vectors: images by the words of their captions and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from diptych.data.corpus import Floats, Integers


@runtime_checkable
class WordStore(Protocol):
    """An index whose words can be searched; an SQLite file is one, a plug-in's index need not be."""

    def captioned(self, phrases: Sequence[str]) -> Integers:
        """The ids of the images whose captions contain any of these phrases, ascending."""
        ...

    def by_words(self, text: str, *, every: bool) -> tuple[Integers, Floats]:
        """The images with these words in captions, name, folder or picture, best first, and their BM25 scores.

        With `every`, an image must have all of the words, and otherwise at least one of them.
        """
        ...

    def has_word(self, word: str) -> bool:
        """Whether a word, in lower case and without accents, is in captions, names, folders or pictures."""
        ...

    def word_counts(self) -> Mapping[str, int]:
        """All words in captions, names, folders and pictures, with how often each occurs."""
        ...
