"""Draw the pairs of each batch, as a pure function of the seed and the epoch number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from diptych.data.corpus import Corpus, Integers
from diptych.data.image_reader import Draw
from diptych.data.sampling.extras import NO_EXTRAS, Extras

RowFinder = Callable[[Integers], Integers]  # numbers of images or texts to their rows in a batch; -1 stays -1


class PairExtra:
    """Something drawn for each pair of a batch beyond the pair itself. Subclass it as a frozen dataclass.

    `images` and `texts` are the numbers of what must be read along with the pairs, with one row per pair and -1 for
    none; None if there is nothing to read.
    """

    images: Integers | None
    texts: Integers | None

    def take(self, pairs: slice | NDArray[np.bool_]) -> Self:
        """The rows of some of the pairs."""
        raise NotImplementedError

    def without_unreadable(self, readable: Integers, pairs: Pairs) -> Self:
        """The same without images that are not among the readable ones; `pairs` are the remaining pairs."""
        return self

    def to_rows(self, image_row: RowFinder, text_row: RowFinder) -> Self:
        """The same with rows of the batch in place of the numbers of images and texts."""
        return self


@dataclass(frozen=True)
class Pairs:
    """The pairs of one batch, as numbers of images and texts, and the draw that seeds random crops of its images."""

    images: Integers  # (pairs,)
    texts: Integers  # (pairs,)
    draw: Draw
    extras: Extras = NO_EXTRAS  # each a PairExtra

    def with_extra(self, extra: PairExtra) -> Pairs:
        """The same pairs with one more extra."""
        return replace(self, extras=self.extras.add(extra))

    def readable(self, images: Integers) -> Pairs:
        """The pairs whose images are among these, with what remains of their extras."""
        keep = np.isin(self.images, images)
        pairs = replace(self, images=self.images[keep], texts=self.texts[keep], extras=NO_EXTRAS)
        remaining = self.extras.map(lambda extra: extra.take(keep).without_unreadable(images, pairs))
        return replace(pairs, extras=remaining)


class EpochExtension(Protocol):
    """Draws an extra for all pairs of an epoch at once."""

    def draw(self, images: Integers, texts: Integers, random: np.random.Generator) -> PairExtra:
        """Draw for each pair of an image and a text."""
        ...


class BatchExtension(Protocol):
    """Adds pairs or extras to each batch after it was drawn."""

    def extend(self, pairs: Pairs, random: np.random.Generator) -> Pairs:
        """The batch with what this extension adds."""
        ...


class PairSampler:
    """Draws every text once per epoch, with an image of its group; groups with several images give a random one."""

    def __init__(
        self,
        corpus: Corpus,
        size: int,
        seed: Sequence[int],
        epoch_extensions: Sequence[EpochExtension] = (),
        batch_extensions: Sequence[BatchExtension] = (),
    ) -> None:
        self._size, self._seed = size, seed
        self._epoch_extensions, self._batch_extensions = epoch_extensions, batch_extensions
        order = np.argsort(corpus.image_groups, kind="stable")
        groups = corpus.image_groups[order]
        self._images_by_group = order
        self._first = np.searchsorted(groups, corpus.text_groups, side="left")
        self._count = np.searchsorted(groups, corpus.text_groups, side="right") - self._first
        self._texts = np.flatnonzero(self._count)

    def __len__(self) -> int:
        """The number of batches per epoch."""
        return len(batch_slices(len(self._texts), self._size))

    def epoch(self, number: int) -> list[Pairs]:
        """The batches of one epoch."""
        random = epoch_random(self._seed, number)
        texts = random.permutation(self._texts)
        chosen = (random.random(len(texts)) * self._count[texts]).astype(np.int64)
        images = self._images_by_group[self._first[texts] + chosen]
        extras = Extras(*(extension.draw(images, texts, random) for extension in self._epoch_extensions))
        batches = []
        for step, part in enumerate(batch_slices(len(texts), self._size)):
            drawn = [extra.take(part) for extra in extras]
            pairs = Pairs(images[part], texts[part], (*self._seed, number, step), Extras(*drawn))
            for extension in self._batch_extensions:
                pairs = extension.extend(pairs, random)
            batches.append(pairs)
        return batches


def epoch_random(seed: Sequence[int], epoch: int) -> np.random.Generator:
    """The random generator of one epoch's batches."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed, epoch])))


def batch_slices(items: int, size: int) -> list[slice]:
    """Cut items into batches; a single item left over, which would have no negative, joins the last batch."""
    ends = [0, *range(size, items - 1, size), items]
    return [slice(start, end) for start, end in pairwise(ends)]
