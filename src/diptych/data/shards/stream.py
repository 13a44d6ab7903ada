"""Reads the samples of shards in the order of an epoch, with a buffer of them in memory, whatever their number."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from diptych.data.shards.index import ShardInfo
from diptych.data.shards.names import is_remote, open_shard, shard_size
from diptych.data.shards.order import SampleId, epoch_order
from diptych.data.shards.samples import RefusedError, Sample, read_samples
from diptych.errors import DataError, one_line

_ATTEMPTS, _PAUSE = 3, 0.5  # to read from other storage, and the seconds before the second attempt


@dataclass(frozen=True, slots=True, weakref_slot=True)
class StreamItem:
    """A sample with one of its texts. Without an image it was lost with its shard, and `problem` says why.

    `number` is the same in every epoch; `name` is that of the image or, if it was lost, of the shard.
    """

    number: int
    name: str
    text: str
    group: int
    image: bytes | None
    problem: str = ""


class Stream:
    """The samples of some splits of shards. Each gives one pair per epoch, with its next text in the next epoch."""

    def __init__(self, shards: Sequence[ShardInfo], splits: Sequence[str]) -> None:
        self.splits = frozenset(splits)
        self.shards = [shard for shard in shards if shard.count(splits)]
        self.counts = [shard.count(splits) for shard in self.shards]
        self._starts = np.cumsum([0, *self.counts]).tolist()

    def __len__(self) -> int:
        """The number of samples."""
        return int(self._starts[-1])

    def items(
        self, seed: Sequence[int], epoch: int, buffer: int, start: int = 0, *, rank: int = 0, ranks: int = 1
    ) -> Generator[StreamItem, None, None]:
        """The samples of an epoch from a position on, as if those before it had been read; they are not.

        With several `ranks`, those of the shards of one of them.
        """
        order = epoch_order(self.counts, [*seed, epoch], buffer, rank=rank, ranks=ranks)
        held: set[SampleId] = set()
        for entered, left in islice(order, start):
            held.update(entered)
            held.discard(left)
        with _Readers(self) as readers:
            items = {sample: self._item(sample, readers.read(sample), epoch) for sample in sorted(held)}
            readers.close()  # of shards that were read to their end, some of which have left the order
            for entered, left in order:
                for sample in entered:
                    items[sample] = self._item(sample, readers.read(sample), epoch)
                yield items.pop(left)

    def texts(self) -> Iterator[str]:
        """All texts, in one pass that reads no images; those of lost samples are left out."""
        for shard in self.shards:
            try:
                for sample in _samples(shard, self.splits):
                    yield from sample.texts
            except RefusedError:
                raise
            except storage_errors(shard.name):
                continue  # training names the shard

    def _item(self, sample: SampleId, read: Sample | str, epoch: int) -> StreamItem:
        shard, row = sample
        number, name = self._starts[shard] + row, self.shards[shard].name
        if isinstance(read, str):
            return StreamItem(number, name, "", -1 - number, None, read)
        text = read.texts[(number + epoch) % len(read.texts)]
        return StreamItem(number, f"{name}:{read.member}", text, read.group_number(number), read.image)


class _Readers:
    """The open shards of a stream, each read once from its beginning to its end."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._open: dict[int, _OpenShard] = {}
        self._lost: dict[int, str] = {}
        self._read: dict[int, int] = {}  # the number of samples up to the last one that was read, by shard

    def __enter__(self) -> _Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all shards; one that is read again is opened again."""
        for reader in self._open.values():
            reader.close()
        self._open.clear()

    def read(self, sample: SampleId) -> Sample | str:
        """A sample behind those that were read of its shard, or why the rest of the shard is lost."""
        shard, row = sample
        name = self._stream.shards[shard].name
        if shard in self._lost:
            return self._lost[shard]
        for attempt in range(_ATTEMPTS):
            try:
                if shard not in self._open:
                    self._open[shard] = _OpenShard(self._stream.shards[shard], self._stream.splits)
                found = self._open[shard].read(row)
            except RefusedError:
                raise
            except storage_errors(name) as reason:
                passed = self._close(shard)
                is_final = isinstance(reason, DataError | FileNotFoundError) or not is_remote(name)
                if is_final or attempt + 1 == _ATTEMPTS:
                    return self._lose(shard, passed, reason)
                time.sleep(_PAUSE * 2**attempt)
                continue
            self._read[shard] = row + 1
            if row + 1 == self._stream.counts[shard]:
                self._close(shard)
            return found
        raise AssertionError("every attempt returns or goes on")

    def _close(self, shard: int) -> int:
        """Close a shard, if it is open; returns how many of its samples have been read or passed over."""
        if shard not in self._open:
            return 0
        reader = self._open.pop(shard)
        reader.close()
        return reader.passed

    def _lose(self, shard: int, passed: int, reason: Exception) -> str:
        """Note that the rest of a shard cannot be read, and why; `passed` is how far it was read this time."""
        name, count = self._stream.shards[shard].name, self._stream.counts[shard]
        read = max(passed, self._read.get(shard, 0))
        if isinstance(reason, FileNotFoundError):
            why = "missing"
        elif isinstance(reason, DataError):
            why = str(reason).removeprefix(f"{name}: ")
        else:
            why = f"cannot be read ({one_line(reason)})"
        which = f"all of its {count:,} samples" if not read else f"the last {count - read:,} of its {count:,} samples"
        self._lost[shard] = f"{name}: {why}; {which} are left out"
        return self._lost[shard]


class _OpenShard:
    """A shard that is being read; the images of samples that are passed over are not."""

    def __init__(self, shard: ShardInfo, splits: frozenset[str]) -> None:
        self._shard, self._target = shard, 0
        self.passed = 0
        self._samples = _samples(shard, splits, lambda number: number == self._target)

    def read(self, row: int) -> Sample:
        self._target = row
        for sample in self._samples:
            self.passed += 1
            if self.passed == row + 1:
                return sample
        raise DataError(f"{self._shard.name}: has only {self.passed:,} usable samples")

    def close(self) -> None:
        self._samples.close()


def storage_errors(name: str) -> tuple[type[Exception], ...]:
    """What reading a shard may raise: the libraries behind fsspec have errors of their own."""
    return (Exception,) if is_remote(name) else (OSError, DataError)


def _samples(
    shard: ShardInfo, splits: frozenset[str], load_image: Callable[[int], bool] = lambda _: False
) -> Generator[Sample, None, None]:
    """The samples of some splits of a shard; closing the generator closes the file."""
    size = None if is_remote(shard.name) else shard_size(shard.name)
    with open_shard(shard.name) as file:
        yield from read_samples(file, shard.name, size, split=shard.split, wanted=splits, load_image=load_image)
