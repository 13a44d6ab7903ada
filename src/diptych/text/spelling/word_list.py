"""The words that a person may type: English words with how rare they are, names, and common words of other languages.

The file has one block per first letter, with the words in plain letters, sorted. A line has one word: the number of
letters that it shares with the beginning of the word before, as a character from "0" on, its other letters, and for an
English word its rarity, as a letter from "A" on. `tests/support/word_list.py` makes the file.
"""

from __future__ import annotations

import functools
import gzip
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from diptych.text.spelling.letters import LetterModel

FILE = Path(__file__).with_name("words.txt.gz")
NAME = 18  # the rarity of names
COMMON = 8  # the rarity up to which a word says nothing by itself, such as "on" and "the"
LETTERS = "abcdefghijklmnopqrstuvwxyz"

_NOT_DECOMPOSED = str.maketrans({"ß": "ss", "ł": "l", "ø": "o", "ı": "i", "đ": "d", "æ": "ae", "œ": "oe"})


def plain(word: str) -> str:
    """A word in lower case and without accents."""
    decomposed = unicodedata.normalize("NFKD", word.lower().translate(_NOT_DECOMPOSED))
    return "".join(character for character in decomposed if not unicodedata.combining(character))


class WordList:
    """Words in plain letters; a block of them is read when a word with its first letter is looked up."""

    def __init__(self, file: Path = FILE) -> None:
        self._text = gzip.decompress(file.read_bytes()).decode("ascii")
        blocks = self._text.split("\n\n")
        self._packed = {block[1]: block for block in blocks}
        self._blocks: dict[str, dict[str, int | None]] = {}

    def __contains__(self, word: str) -> bool:
        return word in self._block(word[:1])

    def rarity(self, word: str) -> int | None:
        """The negative logarithm of an English word's frequency, from 4 ("the") on; None for any other word."""
        return self._block(word[:1]).get(word)

    def is_common(self, word: str) -> bool:
        """Whether a word says nothing by itself, such as "on" and "the"."""
        rarity = self.rarity(word)
        return rarity is not None and rarity <= COMMON

    def words(self) -> Iterator[str]:
        """All words."""
        for letter in self._packed:
            yield from self._block(letter)

    @functools.cached_property
    def other_languages(self) -> LetterModel:
        """The letters of the words of other languages."""
        return LetterModel(word for word in self.words() if self.rarity(word) is None)

    def _block(self, letter: str) -> dict[str, int | None]:
        if letter not in self._blocks:
            self._blocks[letter] = dict(_unpacked(self._packed.get(letter, "")))
        return self._blocks[letter]


def _unpacked(block: str) -> Iterator[tuple[str, int | None]]:
    word = ""
    for line in block.splitlines():
        rest, rarity = line[1:], None
        if rest[-1] < "a":
            rest, rarity = rest[:-1], ord(rest[-1]) - ord("A")
        word = word[: ord(line[0]) - ord("0")] + rest
        yield word, rarity


@functools.cache
def word_list() -> WordList:
    """The list that comes with the package, read once."""
    return WordList()
