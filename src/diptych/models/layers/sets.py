"""Sets of vectors as encodings: (items, places, size), where an empty place is a row of zeros.

An image is the set of its regions, a text the set of its words. All other vectors have length one, so that zeros mark
empty places, and no lengths or masks are passed beside an encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


def present(sets: Tensor) -> Tensor:
    """Which places hold a vector: (items, places)."""
    lengths: Tensor = torch.linalg.vector_norm(sets.detach(), dim=2)  # several times faster than comparing elements
    return lengths > 0


def mean_of_present(sets: Tensor) -> Tensor:
    """The mean of each item's vectors, without empty places: (items, size); zero for an item without any."""
    return sets.sum(1) / present(sets).sum(1, keepdim=True).clamp(min=1)


class Group(NamedTuple):
    """Items that are processed together: `vectors` (places, items, size), and which are `there`, None for all."""

    vectors: Tensor
    there: Tensor | None = None  # (places, items)

    def gram(self) -> Tensor:
        """The inner products among each item's vectors: (items, places, places)."""
        by_item = self.vectors.transpose(0, 1)
        return by_item @ by_item.mT


class GroupedSets(NamedTuple):
    """All vectors of one side, (vectors, size), group by group; the groups are views of them."""

    vectors: Tensor
    groups: list[Group]

    @property
    def items(self) -> list[int]:
        """The number of items of each group."""
        return [group.vectors.shape[1] for group in self.groups]

    @property
    def sizes(self) -> list[int]:
        """The number of vectors of each group."""
        return [group.vectors.shape[0] * group.vectors.shape[1] for group in self.groups]


def as_one_group(sets: Tensor) -> GroupedSets:
    """All items as one group, including their empty places."""
    there = present(sets)
    vectors = sets.transpose(0, 1).contiguous()
    return GroupedSets(vectors.flatten(0, 1), [Group(vectors, None if there.all() else there.t())])


def count_order(sets: Tensor) -> Tensor:
    """The order of the items by their number of vectors."""
    return present(sets).sum(1).argsort(stable=True)


def group_by_count(sets: Tensor, order: Tensor) -> GroupedSets:
    """Items in an order from `count_order`, as groups with equal numbers of vectors and without empty places."""
    there = present(sets).index_select(0, order)  # (items, places)
    items = torch.bincount(there.sum(1))  # by the number of vectors
    shapes = [(number, int(items[number])) for number in items.nonzero().flatten().tolist()]
    sizes = [number * count for number, count in shapes]
    row, place = there.nonzero().unbind(1)  # of all vectors, item by item
    rows = (order[row] * sets.shape[1] + place).split_with_sizes(sizes)
    by_place = [of_group.view(-1, number).t().flatten() for of_group, (number, _) in zip(rows, shapes, strict=True)]
    vectors = sets.flatten(0, 1).index_select(0, torch.cat(by_place))
    parts = zip(vectors.split_with_sizes(sizes), shapes, strict=True)
    return GroupedSets(vectors, [Group(part.view(*shape, -1)) for part, shape in parts])


def concatenate_encodings(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate encodings along the items; sets are padded with zeros to the size of the largest."""
    places = max(part.shape[1] for part in parts)
    return torch.cat([pad(part, (0, 0, 0, places - part.shape[1])) if part.dim() == 3 else part for part in parts])
