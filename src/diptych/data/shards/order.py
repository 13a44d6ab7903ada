"""The order of an epoch of a stream, a pure function of the numbers of samples, the seed and the epoch.

The shards are permuted in every epoch, and a few are read at once, one sample of each in turn. Every sample enters a
buffer when it is read, and whichever sample leaves the full buffer is drawn at random.

Nothing has to be read to know the order: that is how a stream resumes at any sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

LANES = 4  # shards that are read at once

SampleId = tuple[int, int]  # the number of a shard, and that of a sample in it


def share(shards: Sequence[int], part: int, parts: int) -> list[int]:
    """The shards of one of several parts: every shard is in one of them, and their numbers differ by up to one."""
    if not 0 <= part < parts:
        raise ValueError(f"part {part} of {parts}")
    return list(shards[part::parts])


def epoch_order(
    counts: Sequence[int], seed: Sequence[int], buffer: int, *, rank: int = 0, ranks: int = 1
) -> Iterator[tuple[list[SampleId], SampleId]]:
    """The samples of an epoch in order: those that enter the buffer, and the one that then leaves it.

    `counts` are the numbers of samples of the shards, and `seed` has the epoch's number. With several `ranks`, the
    order is that of the shards of one of them.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(list(seed))))
    shards = share(random.permutation(len(counts)).tolist(), rank, ranks)
    arriving = _arrivals([shard for shard in shards if counts[shard]], counts)
    entered = list(islice(arriving, buffer))
    held, draws = list(entered), _draws(random, len(entered))
    for sample in arriving:
        row = next(draws)
        yield entered, held[row]
        held[row] = sample
        entered = [sample]
    for row in random.permutation(len(held)).tolist():
        yield entered, held[row]
        entered = []


def _arrivals(shards: Sequence[int], counts: Sequence[int]) -> Iterator[SampleId]:
    """The samples in the order in which they are read: one of each open shard in turn."""
    waiting = deque(shards)
    lanes = deque((waiting.popleft(), 0) for _ in range(min(LANES, len(shards))))
    while lanes:
        shard, sample = lanes.popleft()
        yield shard, sample
        if sample + 1 < counts[shard]:
            lanes.append((shard, sample + 1))
        elif waiting:
            lanes.append((waiting.popleft(), 0))


def _draws(random: np.random.Generator, size: int) -> Iterator[int]:
    while True:
        yield from random.integers(size, size=4096).tolist()
