"""The vocabulary: the words that a model knows, each with its id; the tokeniser of models that read whole words."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DataError, DiptychError, RunError
from diptych.files import read_json, write_json
from diptych.text.tokenisers.token_table import END, SPECIALS, START, UNKNOWN, TokenTable
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.tokenisers.treebank import tokenise

_FORMAT, _VERSION = "diptych-vocabulary", 1
_REMEDY = "rebuild it from the training texts"


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids: 0 pad, 1 start, 2 end, 3 unknown, then the words, most frequent first; added words follow.

    The four specials are ids without a word: no token of a text is encoded as pad, start or end.
    """

    file: ClassVar[str] = "vocabulary.json"

    words: tuple[str, ...]
    counts: tuple[int, ...]
    threshold: int

    @classmethod
    def from_texts(cls, texts: Iterable[str], threshold: int = 4) -> Vocabulary:
        """Count the words of texts and keep those that occur at least `threshold` times; pass only training texts."""
        counter = _count_words(texts)
        kept = _frequent_words(counter, threshold)
        if not kept:
            raise DataError(
                f"none of the {len(counter)} words in the texts occurs {threshold} times or more; "
                "use more texts or a lower threshold"
            )
        return cls(tuple(kept), tuple(kept.values()), threshold)

    def grown(self, texts: Iterable[str], threshold: int) -> Vocabulary:
        """This vocabulary, whose words keep their ids, followed by the new words that texts have `threshold` times."""
        frequent = _frequent_words(_count_words(texts), threshold)
        new = {word: count for word, count in frequent.items() if word not in self.ids}
        return Vocabulary((*self.words, *new), (*self.counts, *new.values()), threshold)

    def extends(self, other: Vocabulary) -> bool:
        """Whether the words of the other vocabulary have the same ids here."""
        return self.words[: len(other.words)] == other.words

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.words)

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each word; the specials are not included."""
        return {word: number for number, word in enumerate(self.words, len(SPECIALS))}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*SPECIALS, *self.words)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the ids: two vocabularies have the same one exactly if they encode every text alike."""
        content = json.dumps(self._names, separators=(",", ":"))
        return hashlib.sha256(content.encode("ascii")).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of a text's tokens, between start and end."""
        return self.encode_tokens(tokenise(text))

    def encode_tokens(self, tokens: Iterable[str]) -> list[int]:
        """The ids of tokens, between start and end."""
        return [START, *map(self.ids.get, tokens, repeat(UNKNOWN)), END]

    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts."""
        return self.encode_words(map(tokenise, texts))

    def encode_words(self, texts: Iterable[Sequence[str]]) -> TokenTable:
        """The ids of texts that are already split into tokens."""
        return TokenTable.from_rows(map(self.encode_tokens, texts))

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        return tokenise(text)

    def known(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words have an id of their own: (words,)."""
        return np.array([word in self.ids for word in words], bool)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text between start and end; unknown ones as the text has them."""
        return [SPECIALS[START], *tokenise(text), SPECIALS[END]]

    @property
    def sample_words(self) -> Sequence[str]:
        """All words."""
        return self.words

    def decode(self, ids: Iterable[int]) -> list[str]:
        """One string per id; the specials are `<pad>`, `<start>`, `<end>` and `<unknown>`."""
        names = self._names
        numbers = [int(number) for number in ids]
        for number in numbers:
            if not 0 <= number < len(names):
                raise DataError(f"id {number} is not in this vocabulary of {len(names)}; does it belong to the model?")
        return [names[number] for number in numbers]

    def save(self, folder: Path) -> None:
        """Write the vocabulary as JSON into a folder."""
        content = {"words": self.words, "counts": self.counts}
        write_json(folder / self.file, {"format": _FORMAT, "version": _VERSION, "threshold": self.threshold, **content})

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read the file of a vocabulary that `save` wrote; anything else raises a DataError."""
        _refuse_pickle(path)
        content = read_json(path, DataError)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise DataError(f"{path}: not a vocabulary (its format is not {_FORMAT!r}); {_REMEDY}")
        if content.get("version") != _VERSION:
            raise DataError(f"{path}: version {content.get('version')!r}, not the known {_VERSION}; {_REMEDY}")
        if reason := _why_invalid(content):
            raise DataError(f"{path}: {reason}; {_REMEDY}")
        return cls(tuple(content["words"]), tuple(content["counts"]), content["threshold"])


def _count_words(texts: Iterable[str]) -> Counter[str]:
    counter: Counter[str] = Counter()
    for text in texts:
        counter.update(tokenise(text))
    return counter


def _frequent_words(counter: Counter[str], threshold: int) -> dict[str, int]:
    """The words that occur at least `threshold` times with their counts, most frequent first, then alphabetically."""
    kept = sorted((-count, word) for word, count in counter.items() if count >= threshold)
    return {word: -count for count, word in kept}


def _refuse_pickle(path: Path) -> None:
    first = b""
    with suppress(OSError), path.open("rb") as file:  # reading it as JSON gives a better error
        first = file.read(1)
    if first == b"\x80" or path.suffix in (".pkl", ".pickle"):
        raise DataError(f"{path}: a pickle, which could run any code and is never read; {_REMEDY}")


def _why_invalid(content: dict[str, Any]) -> str | None:
    """What is wrong with the fields of a vocabulary file, if anything."""
    words, counts, threshold = (content.get(key) for key in ("words", "counts", "threshold"))
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        return "'words' is not a list of words"
    if len(set(words)) != len(words):
        word, times = Counter(words).most_common(1)[0]
        return f"the word {word!r} is listed {times} times"
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        return "'counts' is not a list of whole numbers"
    if len(counts) != len(words):
        return f"{len(counts)} counts for {len(words)} words"
    return None if type(threshold) is int else "'threshold' is not a whole number"


def require_words(tokeniser: Tokeniser, message: str, error: type[DiptychError] = RunError) -> Vocabulary:
    """The tokeniser, if it is a vocabulary of words; an error with this message for any other."""
    if not isinstance(tokeniser, Vocabulary):
        raise error(message)
    return tokeniser
