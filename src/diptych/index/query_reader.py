"""Reads the texts of queries for what is mistyped in them: the corrected text, and whether any word is known."""

from __future__ import annotations

import functools
from collections.abc import Callable

from diptych.index.backend import IndexStore
from diptych.index.words import WordStore
from diptych.model import Model
from diptych.text.spelling.correction import Corrector, OwnWords, Reading
from diptych.text.spelling.word_list import word_list

_CACHED = 256  # texts
_NO_WORD = "qxzvkjwq"
_NONE: frozenset[str] = frozenset()


class QueryReader:
    """Reads texts with the words of the package's list, of an index, and of a model that reads whole words."""

    def __init__(self, store: IndexStore, model: Model) -> None:
        self._store, self._model = store, model
        self._read = functools.lru_cache(_CACHED)(self._read_once)
        self._corrector: tuple[int, Corrector] | None = None

    def read(self, text: str) -> Reading:
        """The text as it was read; a text that was read before is not read again until the index changes."""
        return self._read(text, self._store.generation)

    def _read_once(self, text: str, generation: int) -> Reading:
        if self._corrector is None or self._corrector[0] != generation:
            self._corrector = generation, Corrector(word_list(), self._own_words(), self._is_known)
        return self._corrector[1].read(text)

    def _own_words(self) -> OwnWords:
        if isinstance(self._store, WordStore):
            return OwnWords(self._store.has_word, self._store.word_counts)
        return OwnWords(_NONE.__contains__, dict)

    @functools.cached_property
    def _is_known(self) -> Callable[[str], bool]:
        """Whether the model knows a word; one that reads pieces claims to know anything, which says nothing."""
        known = self._model.known_words
        if bool(known([_NO_WORD])[0]):
            return _NONE.__contains__
        return lambda word: bool(known([word])[0])
