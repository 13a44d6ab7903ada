"""Tf-idf: one entry per word of the vocabulary, its frequency in the text times its rarity."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from diptych.models.tower import FittedTextTower, TextTowerSettings, Tokens
from diptych.progress import ProgressCallback
from diptych.text.features.bags import known_tokens
from diptych.text.features.tfidf import inverse_document_frequency, tfidf
from diptych.text.tokenisers.token_table import SPECIALS, UNKNOWN, TokenTable
from diptych.text.word_vectors import WordVectors


class TfidfSettings(TextTowerSettings):
    """No settings: the entries are the vocabulary's words."""

    name: Literal["tfidf"] = "tfidf"

    def build(self, words: int) -> Tfidf:
        """A tower that is still to be fitted."""
        return Tfidf(words, self)


class Tfidf(FittedTextTower):
    """Term frequency times the smoothed inverse document frequency of the training texts, normalised to length one."""

    rarity: Tensor  # (words,)

    def __init__(self, words: int, settings: TfidfSettings) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("rarity", torch.zeros(words))
        self.size = words - len(SPECIALS)

    def fit(self, texts: TokenTable, vectors: WordVectors | None, progress: ProgressCallback | None = None) -> None:
        """Count in how many texts each word occurs; word vectors are not used."""
        self.rarity.copy_(torch.from_numpy(inverse_document_frequency(texts, len(self.rarity))))

    def known(self, tokens: Tokens) -> Tensor:
        """Which texts have a word of the vocabulary: (texts,)."""
        return (tokens.ids > UNKNOWN).any(1)

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, words), without the special words."""
        if tokens.features is not None:
            return tokens.features
        if torch.compiler.is_compiling():  # in an export, which needs fixed shapes
            counts = self.rarity.new_zeros(tokens.ids.shape[0], len(self.rarity))
            counts = counts.scatter_add(1, tokens.ids, torch.ones_like(tokens.ids, dtype=counts.dtype))
            return normalize((counts * self.rarity)[:, len(SPECIALS) :], dim=1)
        known = torch.arange(len(self.rarity), device=tokens.ids.device) > UNKNOWN
        words, begins = known_tokens(tokens.ids, known)
        return tfidf(words, begins, self.rarity)[:, len(SPECIALS) :]
