"""The batches of a stream: an epoch is read once from shards, and a batch is in memory only while it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, overload
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Integers, Picture
from diptych.data.images import StoredPicture
from diptych.data.read_ahead import read_ahead
from diptych.data.sampling.pairs import Pairs, batch_slices
from diptych.data.shards.stream import Stream, StreamItem
from diptych.errors import ImageError
from diptych.text.tokenisers.tokeniser import Tokeniser


@dataclass(frozen=True)
class StreamPairs(Pairs):
    """Pairs of a stream, whose numbers are those of samples. The samples stay in memory as long as these pairs."""

    items: tuple[StreamItem, ...] = ()


class StreamWindow:
    """The samples of the batches in use, by their numbers; `lost` are those whose shard is damaged, with the reason."""

    def __init__(self) -> None:
        self.lost: dict[int, str] = {}
        self._items: WeakValueDictionary[int, StreamItem] = WeakValueDictionary()

    def __len__(self) -> int:
        """The number of samples in memory."""
        return len(self._items)

    def add(self, item: StreamItem) -> None:
        """Find this sample by its number from now on."""
        self._items[item.number] = item
        if item.image is None:
            self.lost[item.number] = item.problem

    def __getitem__(self, number: int) -> StreamItem:
        return self._items[number]


class StreamSampler:
    """Draws every sample once per epoch, with one of its texts: its next one in the next epoch.

    The order is that of a buffer of as many samples; see `data/shards/order.py`.
    """

    def __init__(self, stream: Stream, window: StreamWindow, size: int, seed: Sequence[int], buffer: int) -> None:
        self._stream, self._window = stream, window
        self._size, self._seed, self._buffer = size, seed, buffer

    def __len__(self) -> int:
        """The number of batches per epoch."""
        return len(batch_slices(len(self._stream), self._size))

    def epoch(self, number: int) -> StreamEpoch:
        """The batches of one epoch, which are read when they are asked for."""
        return StreamEpoch(self, number)

    def read(self, epoch: int, start: int) -> Iterator[StreamPairs]:
        """The batches of an epoch from one of them on; a thread reads ahead of what is asked for."""
        slices = batch_slices(len(self._stream), self._size)
        if start >= len(slices):
            return
        items = self._stream.items(self._seed, epoch, self._buffer, slices[start].start)

        def next_batch(step: int) -> StreamPairs:
            part = slices[step]
            return self._pairs(tuple(islice(items, part.stop - part.start)), (*self._seed, epoch, step))

        with closing(items):
            yield from read_ahead(next_batch, range(start, len(slices)), workers=1)

    def _pairs(self, items: tuple[StreamItem, ...], draw: tuple[int, ...]) -> StreamPairs:
        for item in items:
            self._window.add(item)
        numbers = np.array([item.number for item in items], np.int64)
        return StreamPairs(numbers, numbers, draw, items=items)


@dataclass(frozen=True)
class StreamEpoch:
    """The batches of an epoch, from any of them on: `epoch[start:]`."""

    sampler: StreamSampler
    number: int

    def __len__(self) -> int:
        return len(self.sampler)

    def __getitem__(self, part: slice) -> Iterator[StreamPairs]:
        """The batches from the slice's start on, in one pass."""
        return self.sampler.read(self.number, part.start or 0)

    def __iter__(self) -> Iterator[StreamPairs]:
        return self[0:]


class StreamPictures(Sequence[Picture]):
    """The images of the samples in memory, by their numbers."""

    def __init__(self, window: StreamWindow, images: int) -> None:
        self._window, self._images = window, images

    def __len__(self) -> int:
        return self._images

    @overload
    def __getitem__(self, number: int) -> Picture: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Picture]: ...
    def __getitem__(self, number: int | slice) -> Any:
        assert isinstance(number, int), "a stream has no slices"
        item = self._window[number]
        if item.image is None:
            return LostPicture(item.problem)
        content = item.image
        return StoredPicture(item.name, lambda: content)


@dataclass(frozen=True)
class LostPicture:
    """An image whose shard is missing or damaged."""

    problem: str

    def load(self) -> Image.Image:
        """Raise ImageError with the reason."""
        raise ImageError(self.problem)


class StreamTexts:
    """The token ids of the samples in memory, by their numbers."""

    def __init__(self, window: StreamWindow, tokeniser: Tokeniser) -> None:
        self._window, self._tokeniser = window, tokeniser

    def batch(self, indices: Sequence[int] | Integers) -> tuple[Integers, Integers]:
        """The ids of a batch of texts, padded with zeros to the longest of them, and their lengths."""
        numbers = np.asarray(indices, np.int64).tolist()
        table = self._tokeniser.encode_all([self._window[number].text for number in numbers])
        return table.batch(np.arange(len(numbers)))


class StreamGroups:
    """The groups of the samples in memory, by their numbers."""

    def __init__(self, window: StreamWindow) -> None:
        self._window = window

    def __getitem__(self, numbers: Integers) -> NDArray[np.int64]:
        return np.array([self._window[number].group for number in numbers.tolist()], np.int64)
