"""Which images and texts of a batch each rank encodes: every one of them once, on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from diptych.data.corpus import Integers
from diptych.data.image_reader import Draw
from diptych.ranks import Ranks


@dataclass(frozen=True)
class Share:
    """The rows of a batch's distinct images and texts that each rank encodes, and the draw of the batch.

    The first `own_pair_texts` of this rank's texts belong to pairs. `image_of` is the image of each of these, as a row
    of this rank's images; None if texts are encoded elsewhere than their images.
    """

    ranks: Ranks
    draw: Draw
    image_rows: tuple[Integers, ...]
    text_rows: tuple[Integers, ...]
    own_pair_texts: int
    image_of: Integers | None = None

    @property
    def own_images(self) -> Integers:
        """The rows of this rank's images."""
        return self.image_rows[self.ranks.rank]

    @property
    def own_texts(self) -> Integers:
        """The rows of this rank's texts."""
        return self.text_rows[self.ranks.rank]

    def keep_images(self, kept: Integers) -> Share:
        """The share of a batch with these of its images only: rows in ascending order, among them all of pairs."""
        rows = (np.searchsorted(kept, own[np.isin(own, kept)]) for own in self.image_rows)
        return replace(self, image_rows=tuple(rows))  # images of pairs come first, so `image_of` stays as it is

    @cached_property
    def image_order(self) -> Integers:
        """Where each image of the batch is among the images of all ranks, in the order of the ranks."""
        return np.argsort(np.concatenate(self.image_rows))

    @cached_property
    def text_order(self) -> Integers:
        """Where each text of the batch is among the texts of all ranks, in the order of the ranks."""
        return np.argsort(np.concatenate(self.text_rows))


@dataclass(frozen=True)
class Split:
    """How many rows belong to pairs, the first ones, and how many there are in all."""

    of_pairs: int
    all: int

    def by_position(self, ranks: Ranks) -> list[Integers]:
        """Consecutive rows for each rank: equal shares of those of pairs, and of the others."""
        pairs, others = np.arange(self.of_pairs), np.arange(self.of_pairs, self.all)
        return [
            np.concatenate([pairs[ranks.share(len(pairs), rank)], others[ranks.share(len(others), rank)]])
            for rank in range(ranks.count)
        ]


def texts_by_words(split: Split, ids: Integers, lengths: Integers, ranks: Ranks) -> list[Integers]:
    """Shares of equal work, in the order of the texts' words, so that texts of one rank share prefixes."""
    order = np.lexsort(ids.T[::-1]) if ids.size else np.arange(0)
    done = np.cumsum(_work(ids[order], lengths[order]))
    total = done[-1] if len(done) else 0
    parts = np.split(order, np.searchsorted(done, total * np.arange(1, ranks.count) / ranks.count))
    return [np.concatenate([part[part < split.of_pairs], part[part >= split.of_pairs]]) for part in parts]


def _work(ids: Integers, lengths: Integers) -> Integers:
    """The number of words of each text beyond the prefix that it shares with the text before it, at least 1."""
    same = np.zeros(ids.shape, bool)
    same[1:] = ids[1:] == ids[:-1]
    work: Integers = np.maximum(1, lengths - np.cumprod(same, axis=1).sum(1))
    return work


def texts_by_image(split: Split, image_of: Integers, image_rows: Sequence[Integers], ranks: Ranks) -> list[Integers]:
    """Text k of a pair goes to the rank of its image, row `image_of[k]`; the others are shared equally."""
    owners = np.repeat(np.arange(ranks.count), [len(rows) for rows in image_rows])
    owner = owners[np.argsort(np.concatenate(image_rows))]  # of each image
    others = np.arange(split.of_pairs, split.all)
    return [
        np.concatenate([np.flatnonzero(owner[image_of] == rank), others[ranks.share(len(others), rank)]])
        for rank in range(ranks.count)
    ]


def rows_among(own: Integers, wanted: Integers) -> Integers:
    """The position of each wanted row among this rank's own, which are in any order."""
    order = np.argsort(own)
    return order[np.searchsorted(own, wanted, sorter=order)]
