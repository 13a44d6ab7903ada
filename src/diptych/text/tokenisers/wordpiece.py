"""WordPiece: like byte-pair encoding, but a word is split into its longest pieces from the left, as in BERT.

Wu et al. 2016, Google's Neural Machine Translation System, section 4.1; Devlin et al. 2019, BERT. Words are lower-case
and split at white space and punctuation first; a piece that does not begin a word starts with `##`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from typing_extensions import Self

from diptych.text.tokenisers.library import import_tokenizers
from diptych.text.tokenisers.piece_training import UNKNOWN_NAME, train_pieces
from diptych.text.tokenisers.pieces import Pieces

CONTINUATION = "##"


class WordPieces(Pieces):
    """A word with a character that did not occur in training is unknown as a whole."""

    name: Literal["wordpiece"] = "wordpiece"

    @classmethod
    def from_texts(cls, texts: Iterable[str], size: int, threshold: int) -> Self:
        """Learn `size` pieces from texts; pairs that occur less than `threshold` times are not joined."""
        library = import_tokenizers()
        model = library.models.WordPiece(unk_token=UNKNOWN_NAME, continuing_subword_prefix=CONTINUATION)

        def trainer(first: list[str]) -> Any:
            return library.trainers.WordPieceTrainer(
                vocab_size=size,
                min_frequency=threshold,
                special_tokens=first,
                continuing_subword_prefix=CONTINUATION,
                show_progress=False,
            )

        return cls(document=train_pieces(model, trainer, _characters, texts))


def _characters(word: str) -> list[str]:
    return [word[0], *(CONTINUATION + character for character in word[1:])]
