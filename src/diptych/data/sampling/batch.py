"""Read the arrays of a batch: each distinct image and text once, and which of them each pair has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.data.image_reader import ImageReader
from diptych.data.sampling.extras import NO_EXTRAS, Extras
from diptych.data.sampling.pairs import PairExtra, Pairs
from diptych.data.sampling.share import Share


class TextFeatures(Protocol):
    """Precomputed vectors, one per text."""

    def __getitem__(self, texts: Integers) -> Floats:
        """The vectors of these texts, (texts, size)."""
        ...


class TextIds(Protocol):
    """The token ids of texts by their numbers, such as a TokenTable."""

    def batch(self, indices: Integers, /) -> tuple[Integers, Integers]:
        """The ids of a batch of texts, padded with zeros to the longest of them, and their lengths."""
        ...


class Groups(Protocol):
    """The groups of texts by their numbers, such as an array of all of them."""

    def __getitem__(self, texts: Integers, /) -> Integers:
        """The groups of these texts."""
        ...


@dataclass(frozen=True)
class PairBatch:
    """A batch as arrays.

    `image_of` and `text_of` give the row of each pair's image and text. Texts are in the order of their first pair.
    Images and texts that only the extras refer to follow those of the pairs.

    With a `share`, `images`, `ids`, `lengths` and `text_features` have only the rows of one rank; everything else, and
    every row that it names, is of the whole batch.
    """

    images: NDArray[Any]  # (images, ...)
    image_of: Integers  # (pairs,)
    ids: Integers  # (texts, length)
    lengths: Integers  # (texts,)
    text_of: Integers  # (pairs,)
    groups: Integers  # (pairs,)
    skipped: tuple[int, ...] = ()  # numbers of the images that could not be read
    extras: Extras = NO_EXTRAS  # what else was drawn for the pairs, each a PairExtra
    text_features: Floats | None = None  # (texts, size): the output of a fitted text tower, computed in advance
    share: Share | None = None

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.groups)

    @cached_property
    def text_repeats(self) -> bool:
        """Whether any text is in more than one pair; if none is, text k belongs to pair k."""
        return not np.array_equal(self.text_of, np.arange(len(self)))

    def with_extra(self, extra: PairExtra) -> PairBatch:
        """The batch with one extra replaced, without the images that nothing refers to any longer."""
        extras, share = self.extras.add(extra), self.share
        kept = _append_new(np.arange(int(self.image_of.max()) + 1), [each.images for each in extras])  # ascending
        own = np.arange(len(self.images)) if share is None else share.own_images
        images = self.images[: len(own)][np.isin(own, kept)]
        return replace(
            self,
            images=images if len(images) else np.zeros_like(self.images[:1]),  # of a rank that has none left
            extras=extras.map(lambda each: each.to_rows(partial(_rows, kept), lambda texts: texts)),
            share=None if share is None else share.keep_images(kept),
        )


@dataclass(frozen=True)
class BatchItems:
    """The numbers of the distinct images and texts of a batch, those of pairs first."""

    images: Integers
    texts: Integers
    pair_images: int  # how many of the images belong to pairs
    pair_texts: int  # how many of the texts do

    @classmethod
    def of(cls, pairs: Pairs, images: Integers | None = None) -> BatchItems:
        """The items of some pairs; `images` are those that could be read, in order, if not all could."""
        of_pairs, texts = np.unique(pairs.images), _distinct_in_order(pairs.texts)
        if images is None:
            images = _append_new(of_pairs, [extra.images for extra in pairs.extras])
        all_texts = _append_new(texts, [extra.texts for extra in pairs.extras])
        return cls(images, all_texts, len(of_pairs), len(texts))

    def image_of(self, pairs: Pairs) -> Integers:
        """The row of each pair's image."""
        return _rows(self.images, pairs.images)

    def text_of(self, pairs: Pairs) -> Integers:
        """The row of each pair's text."""
        return _rows(self.texts[: self.pair_texts], pairs.texts)

    def extras(self, pairs: Pairs) -> Extras:
        """The extras of the pairs with rows in place of numbers."""
        image_row, text_row = partial(_rows, self.images), partial(_rows, self.texts)
        return pairs.extras.map(lambda extra: extra.to_rows(image_row, text_row))


class PairReader:
    """Reads batches; pairs whose image cannot be read are left out.

    `groups` holds the group of each text, `features` the output of a fitted text tower, if any.
    """

    def __init__(
        self, groups: Groups, images: ImageReader, tokens: TextIds, features: TextFeatures | None = None
    ) -> None:
        self.groups, self.images, self.tokens, self._features = groups, images, tokens, features

    def read(self, pairs: Pairs) -> PairBatch:
        """Read one batch; safe to call from several threads."""
        items = BatchItems.of(pairs)
        values, readable = self.images.read(items.images, pairs.draw)
        skipped = tuple(items.images[~readable].tolist())
        if skipped:
            images = items.images[readable]
            pairs = pairs.readable(images)
            items = BatchItems.of(pairs, images)
        ids, lengths = self.tokens.batch(items.texts)
        return PairBatch(
            images=values,
            image_of=items.image_of(pairs),
            ids=ids,
            lengths=lengths,
            text_of=items.text_of(pairs),
            groups=self.groups[pairs.texts],
            skipped=skipped,
            extras=items.extras(pairs),
            text_features=self.features(items.texts),
        )

    def settle(self, read: PairBatch) -> PairBatch:
        """The batch as it was read: there is nobody to agree with."""
        return read

    def features(self, texts: Integers) -> Floats | None:
        """The features of these texts, if there are any."""
        return None if self._features is None else self._features[texts]


def _append_new(numbers: Integers, others: list[Integers | None]) -> Integers:
    """These numbers, followed by those of the others that are not among them, each once; -1 stands for none."""
    more = [other[other >= 0] for other in others if other is not None]
    return np.concatenate([numbers, np.setdiff1d(np.concatenate(more), numbers)]) if more else numbers


def _distinct_in_order(numbers: Integers) -> Integers:
    """Each number once, in the order of its first occurrence."""
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])]


def _rows(numbers: Integers, wanted: Integers) -> Integers:
    """The position of each wanted number among distinct numbers; -1 stays -1."""
    order = np.argsort(numbers)
    found = wanted >= 0
    rows = np.full_like(wanted, -1)
    rows[found] = order[np.searchsorted(numbers, wanted[found], sorter=order)]
    return rows
