"""The baseline of the VSE++ training benchmarks: sizes, texts that share words, and a plain PyTorch step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from diptych.text.tokenisers.token_table import END, PAD, SPECIALS, START

PAIRS, FEATURES, JOINT, WORD, VOCABULARY = 128, 2048, 1024, 300, 10_000


def draw_texts(random: np.random.Generator, count: int, exponent: float = 1.2) -> tuple[NDArray[Any], NDArray[Any]]:
    """Padded ids of texts with start and end tokens, 12 tokens on average, and their lengths.

    Words are drawn with probability proportional to 1 / rank^1.2. The share of distinct words in a batch (24% of its
    tokens) and of distinct prefixes that continue (78%) is then close to that of Flickr8k's captions (23% and 75%).
    """
    words = VOCABULARY - len(SPECIALS)
    weights = 1 / np.arange(1, words + 1) ** exponent
    lengths = random.integers(6, 15, count) + 2
    ids = random.choice(words, (count, int(lengths.max())), p=weights / weights.sum()) + len(SPECIALS)
    ids[:, 0] = START
    ids[np.arange(count), lengths - 1] = END
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = PAD
    return ids, lengths


class PlainStep:
    """A plain PyTorch step, as in the original code: packed sequences, a dense square loss, the default Adam."""

    def __init__(self) -> None:
        self.project = nn.Linear(FEATURES, JOINT)
        self.words = nn.Embedding(VOCABULARY, WORD)
        self.gru = nn.GRU(WORD, JOINT, batch_first=True)
        self.parameters = [*self.project.parameters(), *self.words.parameters(), *self.gru.parameters()]
        self.optimiser = torch.optim.Adam(self.parameters, lr=2e-4)

    def __call__(self, images: Tensor, ids: Tensor, lengths: Tensor) -> float:
        """Train on one batch, with one image per text and the longest text first, and return the loss."""
        image = normalize(self.project(images), dim=1)
        packed = pack_padded_sequence(self.words(ids), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, JOINT)
        text = normalize(states.gather(1, last).squeeze(1), dim=1)
        loss = self.loss(image @ text.t())
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 2.0)
        self.optimiser.step()
        return loss.item()

    @staticmethod
    def loss(scores: Tensor) -> Tensor:
        """Max of hinges with the diagonal as the only positives."""
        positive = scores.diag().view(-1, 1)
        texts = (0.2 + scores - positive.expand_as(scores)).clamp(min=0)
        images = (0.2 + scores - positive.t().expand_as(scores)).clamp(min=0)
        diagonal = torch.eye(len(scores)) > 0.5
        return texts.masked_fill_(diagonal, 0).max(1)[0].sum() + images.masked_fill_(diagonal, 0).max(0)[0].sum()
