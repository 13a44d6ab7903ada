"""What benchmarks of VSE++ training compare with: the sizes, texts that share words, and the step of the originals."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from diptych.text.vocabulary import END, PAD, SPECIALS, START

PAIRS, FEATURES, JOINT, WORD, VOCABULARY = 128, 2048, 1024, 300, 10_000


def draw_texts(random: np.random.Generator, count: int, exponent: float = 1.2) -> tuple[NDArray[Any], NDArray[Any]]:
    """Padded ids of texts between start and end, 12 tokens in the mean, and their lengths.

    Words are drawn with the chance 1 / rank^1.2, which gives a batch about the share of distinct words (24% of its
    tokens) and of prefixes to go on from (78%) that a batch of Flickr8k's captions has (23% and 75%).
    """
    words = VOCABULARY - len(SPECIALS)
    chance = 1 / np.arange(1, words + 1) ** exponent
    lengths = random.integers(6, 15, count) + 2
    ids = random.choice(words, (count, int(lengths.max())), p=chance / chance.sum()) + len(SPECIALS)
    ids[:, 0] = START
    ids[np.arange(count), lengths - 1] = END
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = PAD
    return ids, lengths


class PlainStep:
    """The step as a plain PyTorch loop does it: packed sequences, a dense square loss, the default Adam."""

    def __init__(self) -> None:
        self.project = nn.Linear(FEATURES, JOINT)
        self.words = nn.Embedding(VOCABULARY, WORD)
        self.gru = nn.GRU(WORD, JOINT, batch_first=True)
        self.parameters = [*self.project.parameters(), *self.words.parameters(), *self.gru.parameters()]
        self.optimiser = torch.optim.Adam(self.parameters, lr=2e-4)

    def __call__(self, images: Tensor, ids: Tensor, lengths: Tensor) -> float:
        """Train on one batch, an image a text and the longest text first; the loss."""
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
        own = scores.diag().view(-1, 1)
        texts = (0.2 + scores - own.expand_as(scores)).clamp(min=0)
        images = (0.2 + scores - own.t().expand_as(scores)).clamp(min=0)
        diagonal = torch.eye(len(scores)) > 0.5
        return texts.masked_fill_(diagonal, 0).max(1)[0].sum() + images.masked_fill_(diagonal, 0).max(0)[0].sum()
