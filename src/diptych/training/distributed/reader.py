"""Reads this rank's share of each batch: all ranks draw the same batches, and each image is read by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import BatchItems, PairBatch, PairReader
from diptych.data.sampling.pairs import Pairs
from diptych.data.sampling.share import Share, Split, rows_among, texts_by_image, texts_by_words
from diptych.training.distributed.agreement import Agreement


@dataclass(frozen=True)
class ReadShare:
    """What one rank has read of a batch: those of its images that it could read."""

    pairs: Pairs
    items: BatchItems
    share: Share
    values: NDArray[Any]
    readable: NDArray[np.bool_]


class ShareReader:
    """Reads shares of batches; with `together`, the text of a pair is on the rank of its image."""

    def __init__(self, reader: PairReader, agreement: Agreement, together: bool) -> None:
        self._reader, self._agreement, self._together = reader, agreement, together

    def read(self, pairs: Pairs) -> ReadShare:
        """Read this rank's images of a batch; safe to call from several threads."""
        items = BatchItems.of(pairs)
        image_rows = Split(items.pair_images, len(items.images)).by_position(self._agreement.ranks)
        share = self._share(pairs, items, image_rows)
        values, readable = self._reader.images.read(items.images[share.own_images], pairs.draw)
        return ReadShare(pairs, items, share, values, readable)

    def settle(self, read: ReadShare) -> PairBatch:
        """The batch without the pairs whose images any rank could not read; all ranks call this in the same order."""
        pairs, items, share = read.pairs, read.items, read.share
        images = self._reader.images
        # Of the whole batch: a shard of a stream may be lost to one rank, and its images belong to another.
        known = {image: images.skipped[image] for image in items.images.tolist() if image in images.skipped}
        skipped = self._agreement.unreadable(known)
        if skipped:
            images.skipped.update(skipped)
            remaining = items.images[~np.isin(items.images, list(skipped))]
            pairs = pairs.readable(remaining)
            image_rows = [_rows_after(rows, items.images, remaining) for rows in share.image_rows]
            items = BatchItems.of(pairs, remaining)
            share = self._share(pairs, items, image_rows)
        texts, values = items.texts[share.own_texts], read.values
        # Not all models can encode nothing: a rank without an image or a text gets one that is no part of the batch.
        texts = texts if len(texts) else items.texts[:1]
        values = values if len(values) or not len(items.images) else np.zeros((1, *values.shape[1:]), values.dtype)
        ids, lengths = self._reader.tokens.batch(texts)
        return PairBatch(
            images=values,
            image_of=items.image_of(pairs),
            ids=ids,
            lengths=lengths,
            text_of=items.text_of(pairs),
            groups=self._reader.groups[pairs.texts],
            skipped=tuple(skipped),
            extras=items.extras(pairs),
            text_features=self._reader.features(texts),
            share=share,
        )

    def _share(self, pairs: Pairs, items: BatchItems, image_rows: Sequence[Integers]) -> Share:
        """Who encodes what, given who has read which images."""
        ranks = self._agreement.ranks
        texts = Split(items.pair_texts, len(items.texts))
        first = np.unique(items.text_of(pairs), return_index=True)[1]  # the first pair of each text
        image_of = items.image_of(pairs)[first]
        if self._together:
            text_rows = texts_by_image(texts, image_of, image_rows, ranks)
        else:
            text_rows = texts_by_words(texts, *self._reader.tokens.batch(items.texts), ranks)
        own = text_rows[ranks.rank]
        of_pairs = own[own < items.pair_texts]
        own_image_of = rows_among(image_rows[ranks.rank], image_of[of_pairs]) if self._together else None
        return Share(ranks, pairs.draw, tuple(image_rows), tuple(text_rows), len(of_pairs), own_image_of)


def _rows_after(rows: Integers, before: Integers, after: Integers) -> Integers:
    """The rows of the same images, in order, among those that remain; the others are left out."""
    numbers = before[rows]
    return rows_among(after, numbers[np.isin(numbers, after)])
