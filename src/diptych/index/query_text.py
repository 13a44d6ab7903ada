"""Reads the text of a query: what to look for, and the words after a dash, which hits should not show.

`dog -snow -"red ball"` looks for a dog without snow and without a red ball. A dash counts only at the beginning of a
word: "t-shirt" and a lone "-" are plain text. A text that is in quotes as a whole asks for exactly these words.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from diptych.errors import DataError

# A phrase in quotes, or a word; both have at least one letter or digit.
_EXCLUDED = re.compile(r'(?<!\S)-(?:"([^"]*[^\W_][^"]*)"(?!\S)|([^\W_]\S*))')

_QUOTED = re.compile(r'["“”„]([^"“”„]*[^\W_][^"“”„]*)["“”]')


@dataclass(frozen=True)
class QueryText:
    """What to look for, and the words or phrases to exclude, each once."""

    wanted: str
    excluded: tuple[str, ...] = ()


def parse(text: str) -> QueryText:
    """The text of a query in its parts; a text without exclusions stays as it is."""
    excluded = dict.fromkeys(" ".join((phrase or word).split()) for phrase, word in _EXCLUDED.findall(text))
    if not excluded:
        return QueryText(text)
    wanted = " ".join(_EXCLUDED.sub(" ", text).split())
    if not wanted:
        raise DataError(f"the query {text.strip()[:100]!r} only excludes; add what to look for, such as 'dog -snow'")
    return QueryText(wanted, tuple(excluded))


def excludes(text: str) -> bool:
    """Whether a text, read as a query, excludes words."""
    return _EXCLUDED.search(text) is not None


def quoted_phrases(text: str) -> tuple[list[str], str]:
    """The phrases in quotes of a text without exclusions, and the rest of it."""
    return _QUOTED.findall(text), _QUOTED.sub(" ", text)


def asks_for_exact_words(text: str) -> bool:
    """Whether what a text looks for is in quotes as a whole, as one phrase or several."""
    phrases, rest = quoted_phrases(parse(text).wanted)
    return bool(phrases) and not has_words(rest)


def has_words(text: str) -> bool:
    """Whether a text has a letter, a digit or a pictograph, and not punctuation alone, which describes nothing."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in text)
