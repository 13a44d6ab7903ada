"""Residual blocks over the positions of texts (Zheng et al. 2020, section III-B and figure 3; He et al. 2016).

A text is a row of positions. A block is ResNet's bottleneck whose middle convolution reads a position and the one
before it, with one empty position to the left of the first:

    1x1 to a quarter of the width - 1x2 - 1x1 to the width, batch norm after each, ReLU, plus the block's input

The output at a position depends on the words of a window that ends there. Texts share windows: empty positions above
all, and words that often occur together. So every distinct window is computed once, and batch norm counts it as often
as it occurs. Convolutions are then matrix products, (windows, channels). They have no bias, because the batch norm
after them would remove it. The plain forms do not look for windows: an export needs fixed shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from diptych.models.layers.batch_norm import normed, weighted_norm

BOTTLENECK = 4  # the width of a block divided by that of its 1x2 convolution


@dataclass(frozen=True)
class Windows:
    """The distinct windows of a batch: which one ends at each position, and at how many positions each ends."""

    at: Tensor  # (texts, places)
    counts: Tensor  # (windows,)

    @classmethod
    def from_keys(cls, keys: Tensor) -> tuple[Tensor, Windows]:
        """The distinct keys of (texts, places), and the windows that they stand for."""
        distinct, at, counts = torch.unique(keys, return_inverse=True, return_counts=True)
        return distinct, cls(at, counts)

    def extended(self, stride: int) -> tuple[Tensor, Windows]:
        """Windows extended by the previous position: pairs (previous window, window), and the extended windows.

        With a stride of 2, of every second position including the last, so that nothing at the end of a text is lost.
        The window before the first position is empty: it has the number after all others.
        """
        nothing = len(self.counts)
        first = (self.at.shape[1] - 1) % stride
        before = pad(self.at[:, :-1], (1, 0), value=nothing)[:, first::stride]
        # Sorted by the window itself: if none has two different predecessors, the order does not change.
        keys, windows = Windows.from_keys(self.at[:, first::stride] * (nothing + 1) + before)
        return torch.stack([keys % (nothing + 1), keys // (nothing + 1)], 1), windows


def norm_places(norm: nn.BatchNorm1d, vectors: Tensor, windows: Windows) -> Tensor:
    """Batch norm of (windows, channels) over all positions of all texts; updates the running statistics."""
    return weighted_norm(norm, vectors, windows.counts, windows.at.numel()) if norm.training else normed(norm, vectors)


def plain_norm(norm: nn.BatchNorm1d, places: Tensor) -> Tensor:
    """The same at every position, (texts, places, channels), in evaluation."""
    normed: Tensor = norm(places.flatten(0, 1))
    return normed.view(places.shape)


class Convolution(nn.Module):
    """A 1x1 convolution without a bias, then batch norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.product = nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.BatchNorm1d(outputs)
        nn.init.kaiming_normal_(self.product.weight, nonlinearity="relu")

    def forward(self, vectors: Tensor, windows: Windows) -> Tensor:
        """Convolve (windows, inputs): (windows, outputs)."""
        return norm_places(self.norm, self.product(vectors), windows)

    def plain(self, places: Tensor) -> Tensor:
        """The same at every position, (texts, places, inputs), in evaluation."""
        return plain_norm(self.norm, self.product(places))


class Block(nn.Module):
    """A bottleneck of 1x1, 1x2 and 1x1 convolutions, at every second position with a `stride` of 2.

    The input is added to the output, through a projection if size or stride differ.
    """

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        inner = width // BOTTLENECK
        self.stride = stride
        self.narrow = Convolution(inputs, inner)
        self.pair = Convolution(2 * inner, inner)
        self.widen = Convolution(inner, width)
        self.shortcut = Convolution(inputs, width) if stride > 1 or inputs != width else None

    def forward(self, vectors: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
        """Apply the block to (windows, inputs): (longer windows, width)."""
        inner = self.narrow(vectors, windows).relu_()
        pairs, windows = windows.extended(self.stride)
        beside = embedding(pairs, pad(inner, (0, 0, 0, 1))).flatten(1)  # (longer windows, 2 x inner)
        made: Tensor = self.widen(self.pair(beside, windows).relu_(), windows)
        # If no window has two different predecessors, the rows stay in place.
        same = self.stride == 1 and len(pairs) == len(vectors)
        kept = vectors if same else embedding(pairs[:, 1], vectors)  # (longer windows, inputs)
        if self.shortcut is not None:
            kept = self.shortcut(kept, windows)
        return made.add_(kept).relu_(), windows

    def plain(self, places: Tensor) -> Tensor:
        """The same at every position, in evaluation: (texts, places, inputs) to (texts, fewer places, width)."""
        inner = self.narrow.plain(places).relu()
        beside = torch.cat([pad(inner[:, :-1], (0, 0, 1, 0)), inner], 2)  # (texts, places, 2 x inner)
        kept = slice((places.shape[1] - 1) % self.stride, None, self.stride)
        made = self.widen.plain(self.pair.plain(beside[:, kept]).relu())
        places = places[:, kept]
        return (made + (places if self.shortcut is None else self.shortcut.plain(places))).relu()


def residual_blocks(inputs: int, stages: tuple[tuple[int, int], ...]) -> list[Block]:
    """Blocks for stages of (width, blocks); each stage but the first starts with a stride of 2."""
    blocks = []
    for number, (width, count) in enumerate(stages):
        for block in range(count):
            blocks.append(Block(inputs, width, stride=2 if number and not block else 1))
            inputs = width
    return blocks
