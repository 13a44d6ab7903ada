"""Reasoning over the regions of an image: each region takes in what the others say, by how much it has to do with them.

    R_ij = theta(v_i) . phi(v_j) / N,   v_i* = v_i + BatchNorm( W sum_j R_ij g(v_j) )        (Li et al. 2019, VSRN)

theta, phi, g and W are linear with a bias, N is the number of the image's regions, and there is no softmax. The batch
norm begins with zeros, so that a fresh block changes nothing. Regions that an image does not have are left out of
everything, the statistics of the batch norm too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, linear

from diptych.models.layers.sets import present


@dataclass(frozen=True)
class Layout:
    """Which rows are which image's, where the regions that there are stand one after the other, image by image."""

    counts: Tensor  # (images,): the regions of each image
    most: int
    places: Tensor | None  # (rows,): each row's place among images x most, or none where every place is taken

    @classmethod
    def of(cls, regions: Tensor) -> tuple[Tensor, Layout]:
        """The regions that there are, (rows, size), and their layout, from (images, regions, size) with empty places.

        An image without any region keeps one, of zeros, so that every image has an encoding.
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
        """The rows and the layout of the first so many images alone."""
        counts = self.counts[:images]
        taken = int(counts.sum())
        return rows[:taken], Layout(counts, self.most, None if self.places is None else self.places[:taken])

    def pad(self, rows: Tensor) -> Tensor:
        """(rows, size) to (images, most, size), zeros where an image has no more regions."""
        padded = rows
        if self.places is not None:
            padded = rows.new_zeros(len(self.counts) * self.most, rows.shape[1]).index_copy(0, self.places, rows)
        return padded.view(len(self.counts), self.most, rows.shape[1])

    def take(self, padded: Tensor) -> Tensor:
        """(images, most, size) back to (rows, size)."""
        rows = padded.flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)

    def last(self, padded: Tensor) -> Tensor:
        """The last region of each image: (images, most, size) to (images, size)."""
        return padded[torch.arange(len(padded), device=padded.device), self.counts - 1]


class RegionGraph(nn.Module):
    """One block: regions in, regions of the same size out; see the module's description."""

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
        """(rows, size) to (rows, size)."""
        # W is applied to what a region says, before the sum, which is linear; only its bias is added after it.
        if self.composes(len(rows)):
            affinity, said = self._composed_affinity(rows, layout), self._composed_messages(rows)
        else:
            affinity, said = self._affinity(rows, layout), linear(self.message(rows), self.update.weight)
        shares = affinity / layout.counts[:, None, None]  # (images, most, most)
        heard = layout.take(torch.bmm(shares, layout.pad(said)))  # an empty place says zero, and is not taken
        return rows + self._normalised(heard + self.update.bias)

    def _normalised(self, rows: Tensor) -> Tensor:
        """By the batch's statistics in training, or by the running ones where a single row has none."""
        norm = self.normalise
        if norm.training and len(rows) == 1:
            return batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        normalised: Tensor = norm(rows)
        return normalised

    def composes(self, rows: int) -> bool:
        """Whether two maps in a row cost less as one: a product of the maps saves one of the rows with a map."""
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
