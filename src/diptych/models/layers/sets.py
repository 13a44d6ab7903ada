"""Sets of vectors as encodings: (items, places, size), where an empty place is a row of zeros.

An image is the set of its regions, a text the set of its words. All vectors that are there have length one, so that
nothing else is zero, and no lengths or masks travel beside an encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


def present(sets: Tensor) -> Tensor:
    """Which places are taken, by a vector of some length: (items, places)."""
    lengths: Tensor = torch.linalg.vector_norm(sets.detach(), dim=2)  # several times faster than comparing each number
    return lengths > 0


class Group(NamedTuple):
    """Items whose vectors are taken together: `vectors` (places, items, size), and which are `there`, if not all."""

    vectors: Tensor
    there: Tensor | None = None  # (places, items)

    def gram(self) -> Tensor:
        """The products of each item's vectors with one another: (items, places, places)."""
        by_item = self.vectors.transpose(0, 1)
        return by_item @ by_item.mT


class Arranged(NamedTuple):
    """The vectors of a side one below the other, (vectors, size), group by group; the groups are views of them."""

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


def whole(sets: Tensor) -> Arranged:
    """All items as one group, with their empty places."""
    there = present(sets)
    vectors = sets.transpose(0, 1).contiguous()
    return Arranged(vectors.flatten(0, 1), [Group(vectors, None if there.all() else there.t())])


def by_count(sets: Tensor) -> Tensor:
    """The items in the order of the number of their vectors."""
    return present(sets).sum(1).argsort(stable=True)


def grouped(sets: Tensor, order: Tensor) -> Arranged:
    """Some items, in the order of `by_count`, as groups of the same number of vectors without any empty place."""
    there = present(sets).index_select(0, order)  # (items, places)
    items = torch.bincount(there.sum(1))  # by the number of vectors
    shapes = [(number, int(items[number])) for number in items.nonzero().flatten().tolist()]
    sizes = [number * count for number, count in shapes]
    row, place = there.nonzero().unbind(1)  # of all vectors, item by item
    rows = (order[row] * sets.shape[1] + place).split_with_sizes(sizes)
    by_place = [of_group.view(-1, number).t().flatten() for of_group, (number, _) in zip(rows, shapes, strict=True)]
    vectors = sets.flatten(0, 1).index_select(0, torch.cat(by_place))
    parts = zip(vectors.split_with_sizes(sizes), shapes, strict=True)
    return Arranged(vectors, [Group(part.view(*shape, -1)) for part, shape in parts])


def concatenate_encodings(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate encodings along the items; sets are padded with zeros to the size of the largest."""
    places = max(part.shape[1] for part in parts)
    return torch.cat([pad(part, (0, 0, 0, places - part.shape[1])) if part.dim() == 3 else part for part in parts])
