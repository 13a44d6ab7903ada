"""Read the arrays of a batch: each distinct image and text once, and which of them each pair has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.data.image_reader import ImageReader
from diptych.data.sampling.extras import NO_EXTRAS, Extras
from diptych.data.sampling.pairs import Pairs
from diptych.text.tokenisers.token_table import TokenTable


class TextFeatures(Protocol):
    """Precomputed vectors, one per text."""

    def __getitem__(self, texts: Integers) -> Floats:
        """The vectors of these texts, (texts, size)."""
        ...


@dataclass(frozen=True)
class PairBatch:
    """A batch as arrays.

    `image_of` and `text_of` give the row of each pair's image and text. Texts are in the order of their first pair.
    Images and texts that only the extras refer to follow those of the pairs.
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

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.groups)

    @cached_property
    def text_repeats(self) -> bool:
        """Whether any text is in more than one pair; if none is, text k belongs to pair k."""
        return not np.array_equal(self.text_of, np.arange(len(self)))


class PairReader:
    """Reads batches; pairs whose image cannot be read are left out.

    `groups` holds the group of each text, `features` the output of a fitted text tower, if any.
    """

    def __init__(
        self, groups: Integers, images: ImageReader, tokens: TokenTable, features: TextFeatures | None = None
    ) -> None:
        self._groups, self._images, self._tokens, self._features = groups, images, tokens, features

    def read(self, pairs: Pairs) -> PairBatch:
        """Read one batch; safe to call from several threads."""
        images = _append_new(np.unique(pairs.images), [extra.images for extra in pairs.extras])
        values, readable = self._images.read(images, pairs.draw)
        skipped = tuple(images[~readable].tolist())
        if skipped:
            images = images[readable]
            pairs = pairs.readable(images)
        pair_texts = _distinct_in_order(pairs.texts)
        texts = _append_new(pair_texts, [extra.texts for extra in pairs.extras])
        image_row, text_row = partial(_rows, images), partial(_rows, texts)
        ids, lengths = self._tokens.batch(texts)
        return PairBatch(
            images=values,
            image_of=image_row(pairs.images),
            ids=ids,
            lengths=lengths,
            text_of=_rows(pair_texts, pairs.texts),
            groups=self._groups[pairs.texts],
            skipped=skipped,
            extras=pairs.extras.map(lambda extra: extra.to_rows(image_row, text_row)),
            text_features=None if self._features is None else self._features[texts],
        )


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
