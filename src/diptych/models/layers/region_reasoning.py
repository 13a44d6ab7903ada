"""Reasoning over the regions of an image: each region receives messages from the others, weighted by affinity.

    R_ij = theta(v_i) . phi(v_j) / N,   v_i* = v_i + BatchNorm( W sum_j R_ij g(v_j) )        (Li et al. 2019, VSRN)

theta, phi, g and W are linear with a bias, N is the number of the image's regions, and there is no softmax. The batch
norm starts at zero, so that a new block is the identity. Missing regions never count, neither in the sums nor in the
statistics of the batch norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from diptych.models.layers.batch_norm import normed
from diptych.models.layers.sets import present


@dataclass(frozen=True)
class Layout:
    """Which rows belong to which image, if the present regions of all images are concatenated."""

    counts: Tensor  # (images,): the regions of each image
    most: int
    places: Tensor | None  # (rows,): each row's place among images x most; None if every place is taken

    @classmethod
    def from_regions(cls, regions: Tensor) -> tuple[Tensor, Layout]:
        """The present regions, (rows, size), and their layout, from (images, regions, size) with empty places.

        An image without regions gets one of zeros, so that every image has an encoding.
        """
        there = present(regions)  # (images, regions)
        there[:, 0] |= ~there.any(1)
        counts = there.sum(1)
        most = int(counts.max())
        full = bool((counts == most).all())
        rows = regions.flatten(0, 1) if bool(there.all()) else regions[there]
        taken = torch.arange(most, device=regions.device) < counts[:, None]  # (images, most)
        return rows, cls(counts, most, None if full else taken.flatten().nonzero().squeeze(1))

    def first(self, rows: Tensor, images: int) -> tuple[Tensor, Layout]:
        """The rows and the layout of the first `images` images."""
        counts = self.counts[:images]
        taken = int(counts.sum())
        return rows[:taken], Layout(counts, self.most, None if self.places is None else self.places[:taken])

    def pad(self, rows: Tensor) -> Tensor:
        """Pad (rows, size) to (images, most, size), with zeros after an image's last region."""
        padded = rows
        if self.places is not None:
            padded = rows.new_zeros(len(self.counts) * self.most, rows.shape[1]).index_copy(0, self.places, rows)
        return padded.view(len(self.counts), self.most, rows.shape[1])

    def take(self, padded: Tensor) -> Tensor:
        """The inverse of `pad`: (images, most, size) to (rows, size)."""
        rows = padded.flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)

    def last(self, padded: Tensor) -> Tensor:
        """The last region of each image: (images, most, size) to (images, size)."""
        return padded[torch.arange(len(padded), device=padded.device), self.counts - 1]


class RegionGraph(nn.Module):
    """One block, see the module docstring; regions keep their size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.theta = nn.Linear(size, size)
        self.phi = nn.Linear(size, size)
        self.message = nn.Linear(size, size)
        self.update = nn.Linear(size, size)
        self.normalise = nn.BatchNorm1d(size)
        nn.init.zeros_(self.normalise.weight)
        nn.init.zeros_(self.normalise.bias)

    def forward(self, rows: Tensor, layout: Layout) -> Tensor:
        """Update the regions: (rows, size)."""
        # W is applied to the messages before the sum, which is linear; only its bias is added afterwards.
        if self.composes(len(rows)):
            affinity, messages = self._composed_affinity(rows, layout), self._composed_messages(rows)
        else:
            affinity, messages = self._affinity(rows, layout), linear(self.message(rows), self.update.weight)
        shares = affinity / layout.counts[:, None, None]  # (images, most, most)
        received = layout.take(torch.bmm(shares, layout.pad(messages)))  # empty places send zero, and are dropped
        return rows + normed(self.normalise, received + self.update.bias)

    def composes(self, rows: int) -> bool:
        """Whether it is cheaper to multiply two consecutive maps first, instead of applying both to the rows."""
        return rows > self.theta.in_features

    def _affinity(self, rows: Tensor, layout: Layout) -> Tensor:
        return torch.bmm(layout.pad(self.theta(rows)), layout.pad(self.phi(rows)).transpose(1, 2))

    def _composed_affinity(self, rows: Tensor, layout: Layout) -> Tensor:
        """theta(v_i) . phi(v_j) = v_i . Theta^T phi(v_j) + b_theta . phi(v_j): all but v_i as one map of v_j."""
        theta, phi = self.theta, self.phi
        keys = linear(rows, theta.weight.t() @ phi.weight, theta.weight.t() @ phi.bias)  # (rows, size)
        alone = rows @ (phi.weight.t() @ theta.bias) + theta.bias @ phi.bias  # (rows,)
        columns = layout.pad(alone[:, None]).transpose(1, 2)  # (images, 1, most)
        return torch.baddbmm(columns, layout.pad(rows), layout.pad(keys).transpose(1, 2))

    def _composed_messages(self, rows: Tensor) -> Tensor:
        update, message = self.update, self.message
        return linear(rows, update.weight @ message.weight, update.weight @ message.bias)
