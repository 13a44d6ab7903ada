"""Batches of pairs: drawn from a seed and the epoch's number alone, read ahead by threads, always in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers
from diptych.data.offline import Offline, OfflineSampler
from diptych.data.reader import Draw, ImageReader
from diptych.text.vocabulary import TokenTable

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Pairs:
    """The drawn pairs of one batch by number, and the draw that random readings of their images depend on."""

    images: Integers
    texts: Integers
    draw: Draw
    offline: Offline | None = None


@dataclass(frozen=True)
class PairBatch:
    """Pairs as arrays: each distinct image once, `image_of` says which row belongs to each pair, text k to pair k.

    Behind those of the pairs stand the images and texts that only `offline` negatives need, each once; its numbers are
    rows here.
    """

    images: NDArray[Any]  # (distinct images, ...)
    image_of: Integers  # (pairs,)
    ids: Integers  # (texts, length)
    lengths: Integers  # (texts,)
    groups: Integers  # (pairs,)
    skipped: tuple[int, ...] = ()  # images that could not be read
    offline: Offline | None = None

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.groups)


class PairSampler:
    """Every text once an epoch, each with an image of its group; where a group has several, one drawn at random.

    With an `offline` sampler each pair has its offline negatives, too.
    """

    def __init__(self, corpus: Corpus, size: int, seed: Sequence[int], offline: OfflineSampler | None = None) -> None:
        self._size = size
        self._seed = seed
        self._offline = offline
        order = np.argsort(corpus.image_groups, kind="stable")
        groups = corpus.image_groups[order]
        self._images = order
        self._first = np.searchsorted(groups, corpus.text_groups, side="left")
        self._count = np.searchsorted(groups, corpus.text_groups, side="right") - self._first
        self._texts = np.flatnonzero(self._count)

    def __len__(self) -> int:
        """The number of batches an epoch."""
        return len(self._cuts()) + 1

    def epoch(self, number: int) -> list[Pairs]:
        """The batches of one epoch, a pure function of the seed and the epoch's number."""
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*self._seed, number])))
        texts = random.permutation(self._texts)
        draw = (random.random(len(texts)) * self._count[texts]).astype(np.int64)
        images = self._images[self._first[texts] + draw]
        offline = None if self._offline is None else self._offline.draw(images, texts, random)
        ends = [0, *self._cuts(), len(texts)]
        spans = [slice(start, end) for start, end in pairwise(ends)]
        return [
            Pairs(images[span], texts[span], (*self._seed, number, step), _take(offline, span))
            for step, span in enumerate(spans)
        ]

    def _cuts(self) -> range:
        """Where batches end; a last pair that would be alone, without a negative, joins the batch before."""
        return range(self._size, len(self._texts) - 1, self._size)


class PairReader:
    """Makes a batch's arrays from its image and text numbers; pairs of unreadable images are left out."""

    def __init__(self, corpus: Corpus, images: ImageReader, tokens: TokenTable) -> None:
        self._groups = corpus.text_groups
        self._images = images
        self._tokens = tokens

    def read(self, pairs: Pairs) -> PairBatch:
        """Read one batch; safe to call from several threads."""
        images, texts, offline = pairs.images, pairs.texts, pairs.offline
        distinct = _first_then(np.unique(images), None if offline is None else offline.images)
        values, readable = self._images.read(distinct, pairs.draw)
        skipped = tuple(distinct[~readable].tolist())
        if skipped:
            distinct = distinct[readable]
            here = np.isin(images, distinct)
            images, texts, offline = images[here], texts[here], _take(offline, here)
            if offline is not None:  # the pair itself is there, and trains with the negatives of the batch
                offline = offline.only(np.isin(offline.images, distinct).min(1), images, texts)
        every = _first_then(texts, None if offline is None else offline.texts)
        ids, lengths = self._tokens.batch(every)
        if offline is not None:
            offline = replace(offline, images=_places(distinct, offline.images), texts=_places(every, offline.texts))
        return PairBatch(values, _places(distinct, images), ids, lengths, self._groups[texts], skipped, offline)


def _take(offline: Offline | None, pairs: slice | NDArray[np.bool_]) -> Offline | None:
    return None if offline is None else offline.take(pairs)


def _first_then(numbers: Integers, more: Integers | None) -> Integers:
    """These numbers, and behind them, each once, those of the others that are not among them."""
    return numbers if more is None else np.concatenate([numbers, np.setdiff1d(more, numbers)])


def _places(numbers: Integers, wanted: Integers) -> Integers:
    """Where in some distinct numbers each wanted one stands."""
    order = np.argsort(numbers)
    return order[np.searchsorted(numbers, wanted, sorter=order)]


def read_ahead(read: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Map in order, with `workers` threads reading ahead; the results do not depend on how many there are."""
    if workers == 0:
        yield from map(read, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(read, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
