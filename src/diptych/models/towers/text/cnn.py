"""The text CNN: words at positions of a fixed-length row, a lookup, residual blocks over neighbours, and pooling.

Zheng, Zheng, Garrett, Yang, Xu, Shen: Dual-Path Convolutional Image-Text Embeddings with Instance Loss (2020),
section III-B. The paper's one-hot sentence T times the first 1x1 convolution is a lookup; a column of zeros is an
empty position, a zero vector. The lookup has no bias, because the batch norm after it would remove it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding

from diptych.models.layers.text_blocks import Block, Windows, norm_places, plain_norm, residual_blocks
from diptych.models.tower import TextTower, TextTowerSettings, Tokens, load_word_embedding
from diptych.settings import Count
from diptych.text.tokenisers.token_table import PAD, UNKNOWN

PLACEMENTS_AT_ONCE = 256

# The width and the number of blocks of each stage: those of the ResNets, of the authors' public code (which omits two
# blocks at the end), and small ones for a CPU.
DEPTHS = {
    "resnet50": ((256, 3), (512, 4), (1024, 6), (2048, 3)),
    "public": ((256, 3), (512, 4), (1024, 6), (2048, 1)),
    "resnet152": ((256, 3), (512, 8), (1024, 36), (2048, 3)),
    "small": ((128, 2), (256, 2), (512, 2), (1024, 1)),
}


class TextCNNSettings(TextTowerSettings):
    """Size of the word embedding, depth, the number of positions (`length`), pooling, and where a text is placed.

    With `alignment = "shift"` a text begins at a random position in training and is centred in evaluation; with "left"
    it always begins at the first position. The paper pools by the mean, its public code by the maximum.
    """

    name: Literal["cnn"] = "cnn"
    word: Count = 300
    depth: Literal["resnet50", "public", "resnet152", "small"] = "resnet50"
    length: Annotated[int, Field(ge=8, strict=True)] = 32
    pool: Literal["mean", "max"] = "mean"
    alignment: Literal["shift", "left"] = "shift"

    def build(self, words: int) -> TextCNN:
        """A tower with random weights."""
        return TextCNN(words, self, DEPTHS[self.depth])


class TextCNN(TextTower):
    """The first `length` known words at their positions; then lookup, batch norm, blocks and pooling.

    Start, end and unknown words are left out. A text without known words gets the vector of empty positions.
    """

    def __init__(self, words: int, settings: TextCNNSettings, stages: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.length, self.pool, self.alignment = settings.length, settings.pool, settings.alignment
        self.words = nn.Embedding(words, settings.word, padding_idx=PAD)
        self.norm = nn.BatchNorm1d(settings.word)
        self.blocks = nn.ModuleList(residual_blocks(settings.word, stages))
        self.size = stages[-1][0]
        nn.init.uniform_(self.words.weight, -0.1, 0.1)
        with torch.no_grad():
            self.words.weight[PAD] = 0

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts, each at one position: (texts, size)."""
        kept, count = self._known(tokens)
        return self.encode(self._placed(tokens.ids, kept, self._begins(count)))

    def encode_at_all_positions(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Encode every text at every position where it fits: (placements, size), and the text of each (placements,).

        For evaluation only. A text without known words has one placement.
        """
        kept, count = self._known(tokens)
        fits = torch.where(count > 0, self.length - count + 1, 1)
        owner = torch.arange(len(fits), device=fits.device).repeat_interleave(fits)  # (placements,)
        begins = torch.arange(len(owner), device=fits.device) - (fits.cumsum(0) - fits)[owner]
        placed = self._placed(tokens.ids[owner], kept[owner], begins)
        return torch.cat([self.encode(some) for some in torch.split(placed, PLACEMENTS_AT_ONCE)]), owner

    def encode(self, placed: Tensor) -> Tensor:
        """Encode words at their positions, (texts, length) with PAD at empty ones: (texts, size)."""
        if torch.compiler.is_compiling():  # in an export
            return self.plain(placed)
        words, windows = Windows.from_keys(placed)
        vectors = norm_places(self.norm, self.words(words), windows)
        for block in self.blocks:
            vectors, windows = block(vectors, windows)
        return self._pooled(embedding(windows.at, vectors))

    def plain(self, placed: Tensor) -> Tensor:
        """The same without sharing work between texts, for evaluation: (texts, size)."""
        places = plain_norm(self.norm, self.words(placed))  # (texts, length, word)
        for block in self.blocks:
            assert isinstance(block, Block)
            places = block.plain(places)
        return self._pooled(places)

    def _pooled(self, places: Tensor) -> Tensor:
        """Pool (texts, remaining positions, size) to (texts, size)."""
        return places.mean(1) if self.pool == "mean" else places.amax(1)

    def load_word_vectors(self, vectors: Tensor, found: Tensor) -> None:
        """Initialise the found words with these vectors; the others stay random."""
        load_word_embedding(self.words, vectors, found)

    def _known(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Which words are used, the first `length` known ones, (texts, words), and how many, (texts,)."""
        known = tokens.ids > UNKNOWN
        kept = known & (known.cumsum(1) <= self.length)
        return kept, kept.sum(1)

    def _begins(self, count: Tensor) -> Tensor:
        """The position at which each text of `count` words begins: (texts,)."""
        free = self.length - count
        if self.alignment == "left":
            return torch.zeros_like(free)
        if not self.training:
            return free // 2
        drawn = (torch.rand(len(free), device=free.device) * (free + 1)).long()
        return torch.minimum(drawn, free)  # the product may round up to free + 1

    def _placed(self, ids: Tensor, kept: Tensor, begins: Tensor) -> Tensor:
        """Place the used words of each text one after the other from its beginning: (texts, length)."""
        place = begins[:, None] + kept.cumsum(1) - 1
        beyond = ids.new_full(
            (ids.shape[0], self.length + 1), PAD
        )  # one extra position for the words that are not used
        return beyond.scatter_(1, torch.where(kept, place, self.length), ids)[:, : self.length]
