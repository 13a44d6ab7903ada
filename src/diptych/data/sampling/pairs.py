"""Batches of pairs: drawn from a seed and the epoch's number alone, read ahead by threads, always in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Floats, Integers
from diptych.data.image_reader import Draw, ImageReader
from diptych.data.sampling.neighbours import Neighbours
from diptych.data.sampling.offline import Offline, OfflineSampler
from diptych.text.vocabulary import TokenTable

RIVAL_DRAWS = 20  # before a pair whose batch has hardly another group goes without

Item = TypeVar("Item")
Result = TypeVar("Result")


class TextFeatures(Protocol):
    """A vector a text, made before."""

    def __getitem__(self, texts: Integers) -> Floats:
        """The vectors of these texts, (texts, size)."""
        ...


@dataclass(frozen=True)
class Rivals:
    """Negatives that were drawn for each pair alone, (pairs, rivals) numbers, -1 where there is none.

    `images` are not what the pair's text says: for a phrase, regions of its photo that show something else. `texts`
    do not say what is in the pair's image.
    """

    images: Integers | None = None
    texts: Integers | None = None

    def take(self, pairs: NDArray[np.bool_]) -> Rivals:
        """Those of some of the pairs."""
        return Rivals(*(None if side is None else side[pairs] for side in (self.images, self.texts)))


@dataclass(frozen=True)
class Pairs:
    """The drawn pairs of one batch by number, and the draw that random readings of their images depend on.

    `asking`, (pairs, 2), says of each pair whether its image looks for its text, and its text for its image: one that
    was added as a second positive of its image does so in one direction only. Without it, all do.
    """

    images: Integers
    texts: Integers
    draw: Draw
    offline: Offline | None = None
    rivals: Rivals | None = None
    asking: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class PairBatch:
    """Pairs as arrays: each distinct image once, `image_of` says which row belongs to each pair, `text_of` which text.

    The texts are in the order of the pairs; without `text_of` no text is in two pairs, and text k belongs to pair k.
    Behind those of the pairs stand the images and texts that only `offline` negatives or `rivals` need, each once;
    their numbers are rows here.
    """

    images: NDArray[Any]  # (distinct images, ...)
    image_of: Integers  # (pairs,)
    ids: Integers  # (texts, length)
    lengths: Integers  # (texts,)
    groups: Integers  # (pairs,)
    skipped: tuple[int, ...] = ()  # images that could not be read
    offline: Offline | None = None
    text_of: Integers | None = None  # (pairs,)
    rivals: Rivals | None = None
    asking: NDArray[np.bool_] | None = None  # (pairs, 2)
    text_features: Floats | None = None  # (texts, size): what a fitted text tower has made of them before

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.groups)


class PairSampler:
    """Every text once an epoch, each with an image of its group; where a group has several, one drawn at random.

    With an `offline` sampler each pair has its offline negatives, with `neighbours` every image and text of a batch has
    a second positive in it where there is one, and with `rivals` so many texts of the batch are drawn for each pair
    that are not of its group.
    """

    def __init__(
        self,
        corpus: Corpus,
        size: int,
        seed: Sequence[int],
        offline: OfflineSampler | None = None,
        *,
        neighbours: bool = False,
        rivals: int = 0,
    ) -> None:
        self._size = size
        self._seed = seed
        self._offline = offline
        self._neighbours = Neighbours(corpus.image_groups, corpus.text_groups) if neighbours else None
        self._rivals, self._groups = rivals, corpus.text_groups
        order = np.argsort(corpus.image_groups, kind="stable")
        groups = corpus.image_groups[order]
        self._images = order
        self._first = np.searchsorted(groups, corpus.text_groups, side="left")
        self._count = np.searchsorted(groups, corpus.text_groups, side="right") - self._first
        self._texts = np.flatnonzero(self._count)

    def __len__(self) -> int:
        """The number of batches an epoch."""
        return len(spans(len(self._texts), self._size))

    def epoch(self, number: int) -> list[Pairs]:
        """The batches of one epoch, a pure function of the seed and the epoch's number."""
        random = epoch_random(self._seed, number)
        texts = random.permutation(self._texts)
        draw = (random.random(len(texts)) * self._count[texts]).astype(np.int64)
        images = self._images[self._first[texts] + draw]
        offline = None if self._offline is None else self._offline.draw(images, texts, random)
        return [
            self._batch(images[span], texts[span], (*self._seed, number, step), _take(offline, span), random)
            for step, span in enumerate(spans(len(texts), self._size))
        ]

    def _batch(
        self, images: Integers, texts: Integers, draw: Draw, offline: Offline | None, random: np.random.Generator
    ) -> Pairs:
        asking = None
        if self._neighbours is not None:
            images, texts, asking = self._neighbours.add(images, texts, random)
        rivals = Rivals(texts=self._rival_texts(texts, random)) if self._rivals else None
        return Pairs(images, texts, draw, offline, rivals, asking)

    def _rival_texts(self, texts: Integers, random: np.random.Generator) -> Integers:
        """Texts of the batch that belong to another group than each pair: (pairs, rivals)."""
        groups = self._groups[texts]
        drawn = random.integers(len(texts), size=(len(texts), self._rivals))
        for _ in range(RIVAL_DRAWS):
            same = groups[drawn] == groups[:, None]
            if not same.any():
                break
            drawn[same] = random.integers(len(texts), size=int(same.sum()))
        return np.where(groups[drawn] == groups[:, None], -1, texts[drawn])


def epoch_random(seed: Sequence[int], epoch: int) -> np.random.Generator:
    """What an epoch's batches are drawn from."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed, epoch])))


def spans(items: int, size: int) -> list[slice]:
    """The batches of so many pairs; a last pair that would be alone, without a negative, joins the batch before."""
    ends = [0, *range(size, items - 1, size), items]
    return [slice(start, end) for start, end in pairwise(ends)]


class PairReader:
    """Makes a batch's arrays from its image and text numbers; pairs of unreadable images are left out.

    `groups` holds the group of each text; `features`, where a fitted text tower has been at work, what it made of each.
    """

    def __init__(
        self, groups: Integers, images: ImageReader, tokens: TokenTable, features: TextFeatures | None = None
    ) -> None:
        self._groups = groups
        self._images = images
        self._tokens = tokens
        self._features = features

    def read(self, pairs: Pairs) -> PairBatch:
        """Read one batch; safe to call from several threads."""
        distinct = _first_then(np.unique(pairs.images), *(negatives.images for negatives in _negatives(pairs)))
        values, readable = self._images.read(distinct, pairs.draw)
        skipped = tuple(distinct[~readable].tolist())
        if skipped:
            distinct = distinct[readable]
            pairs = _readable(pairs, distinct)
        own = _in_order(pairs.texts)
        every = _first_then(own, *(negatives.texts for negatives in _negatives(pairs)))
        ids, lengths = self._tokens.batch(every)
        offline, rivals = pairs.offline, pairs.rivals
        if offline is not None:
            offline = replace(offline, images=_places(distinct, offline.images), texts=_places(every, offline.texts))
        if rivals is not None:
            rivals = Rivals(_rows(distinct, rivals.images), _rows(every, rivals.texts))
        return PairBatch(
            images=values,
            image_of=_places(distinct, pairs.images),
            ids=ids,
            lengths=lengths,
            groups=self._groups[pairs.texts],
            skipped=skipped,
            offline=offline,
            text_of=None if len(own) == len(pairs.texts) else _places(own, pairs.texts),
            rivals=rivals,
            asking=pairs.asking,
            text_features=None if self._features is None else self._features[every],
        )


def _readable(pairs: Pairs, images: Integers) -> Pairs:
    """Those of the pairs whose images could be read, with what is left of their negatives."""
    here = np.isin(pairs.images, images)
    own, texts, offline = pairs.images[here], pairs.texts[here], _take(pairs.offline, here)
    if offline is not None:  # the pair itself is there, and trains with the negatives of the batch
        offline = offline.only(np.isin(offline.images, images).min(1), own, texts)
    rivals = None if pairs.rivals is None else pairs.rivals.take(here)
    if rivals is not None and rivals.images is not None:
        rivals = replace(rivals, images=np.where(np.isin(rivals.images, images), rivals.images, -1))
    asking = None if pairs.asking is None else pairs.asking[here]
    return Pairs(own, texts, pairs.draw, offline, rivals, asking)


def _take(offline: Offline | None, pairs: slice | NDArray[np.bool_]) -> Offline | None:
    return None if offline is None else offline.take(pairs)


def _negatives(pairs: Pairs) -> list[Offline | Rivals]:
    return [negatives for negatives in (pairs.offline, pairs.rivals) if negatives is not None]


def _first_then(numbers: Integers, *others: Integers | None) -> Integers:
    """These numbers, and behind them, each once, those of the others that are not among them; -1 is none."""
    more = [other[other >= 0] for other in others if other is not None]
    return np.concatenate([numbers, np.setdiff1d(np.concatenate(more), numbers)]) if more else numbers


def _in_order(numbers: Integers) -> Integers:
    """Each number once, where it comes first."""
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])]


def _rows(numbers: Integers, wanted: Integers | None) -> Integers | None:
    """Where in some distinct numbers each wanted one stands, -1 staying what it is."""
    if wanted is None:
        return None
    there = wanted >= 0
    rows = np.full_like(wanted, -1)
    rows[there] = _places(numbers, wanted[there])
    return rows


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
