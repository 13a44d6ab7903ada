"""Byte-pair encoding: the most frequent pairs of neighbouring pieces are joined, from single characters on.

Sennrich et al. 2016, Neural Machine Translation of Rare Words with Subword Units. Words are lower-case and split at
white space and punctuation first; the last piece of a word ends with `</w>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from typing_extensions import Self

from diptych.text.tokenisers.library import import_tokenizers
from diptych.text.tokenisers.piece_training import UNKNOWN_NAME, train_pieces
from diptych.text.tokenisers.pieces import Pieces

WORD_END = "</w>"


class BytePairs(Pieces):
    """A word whose characters all occurred in training has a sequence of pieces; any other character is unknown."""

    name: Literal["bpe"] = "bpe"

    @classmethod
    def from_texts(cls, texts: Iterable[str], size: int, threshold: int) -> Self:
        """Learn `size` pieces from texts; pairs that occur less than `threshold` times are not joined."""
        library = import_tokenizers()
        model = library.models.BPE(unk_token=UNKNOWN_NAME, end_of_word_suffix=WORD_END)

        def trainer(first: list[str]) -> Any:
            return library.trainers.BpeTrainer(
                vocab_size=size,
                min_frequency=threshold,
                special_tokens=first,
                end_of_word_suffix=WORD_END,
                show_progress=False,
            )

        return cls(document=train_pieces(model, trainer, _characters, texts))


def _characters(word: str) -> list[str]:
    return [*word[:-1], word[-1] + WORD_END]
