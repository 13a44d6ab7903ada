"""Word pieces for towers that are trained from scratch, which know the ids of padding, start, end and unknown.

The library's ids are renumbered: 0 to 3 are those of `token_table`, and its pieces follow in the order of their ids.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from functools import cached_property

from diptych.text.tokenisers.library import LibraryTokeniser
from diptych.text.tokenisers.token_table import END, SPECIALS, START, UNKNOWN, TokenTable


class Pieces(LibraryTokeniser, ABC):
    """A text is `<start>`, its pieces, `<end>`; special tokens of the library are not added."""

    def __len__(self) -> int:
        return len(self._names)

    def encode_all(self, texts: Iterable[str]) -> TokenTable:
        """The ids of many texts."""
        number = self._numbers.__getitem__
        rows = self.encode_texts(texts, special=False)
        return TokenTable.from_rows([START, *map(number, row), END] for row in rows)

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text between start and end."""
        return [self._names[number] for number in self.encode_all([text]).flat]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """What each id stands for."""
        unknown = None if self.unknown_id is None else self.library.id_to_token(self.unknown_id)
        return (*SPECIALS, *(piece for piece in self._pieces_by_id if piece != unknown))

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The id of each of the library's ids."""
        vocabulary: dict[str, int] = self.library.get_vocab()
        numbers = {} if self.unknown_id is None else {self.unknown_id: UNKNOWN}
        names = enumerate(self._names[len(SPECIALS) :], len(SPECIALS))
        return numbers | {vocabulary[piece]: number for number, piece in names}
