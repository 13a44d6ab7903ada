"""Batches of pairs: drawn from a seed and the epoch's number alone, read ahead by threads, always in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers
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


@dataclass(frozen=True)
class PairBatch:
    """Pairs as arrays: each distinct image once, `image_of` says which row belongs to each pair."""

    images: NDArray[Any]  # (distinct images, ...)
    image_of: Integers  # (pairs,)
    ids: Integers  # (pairs, length)
    lengths: Integers  # (pairs,)
    groups: Integers  # (pairs,)
    skipped: tuple[int, ...] = ()  # images that could not be read


class PairSampler:
    """Every text once an epoch, each with an image of its group; where a group has several, one drawn at random."""

    def __init__(self, corpus: Corpus, size: int, seed: Sequence[int]) -> None:
        self._size = size
        self._seed = seed
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
        batches = zip(np.split(images, self._cuts()), np.split(texts, self._cuts()), strict=True)
        return [Pairs(*batch, (*self._seed, number, step)) for step, batch in enumerate(batches)]

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
        texts = pairs.texts
        distinct, image_of = np.unique(pairs.images, return_inverse=True)
        values, readable = self._images.read(distinct, pairs.draw)
        skipped = tuple(distinct[~readable].tolist())
        if skipped:
            here = readable[image_of]
            image_of, texts = (np.cumsum(readable) - 1)[image_of[here]], texts[here]
        ids, lengths = self._tokens.batch(texts)
        return PairBatch(values, image_of, ids, lengths, self._groups[texts], skipped)


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
