"""A corpus of shards: train is a stream, which only training reads, and val and test are in memory like any corpus."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from diptych.data.corpus import Corpus, Integers, Picture, Problem
from diptych.data.images import StoredPicture
from diptych.data.shards.index import ShardInfo, file_name
from diptych.data.shards.samples import RefusedError, Sample
from diptych.data.shards.stream import Stream
from diptych.errors import DataError

STREAMED = ("train", "restval")
HELD = ("val", "test")
MAX_HELD = 200_000  # samples of val, and of test
MAX_HELD_BYTES = 2 * 2**30  # of images that are in other storage, and are kept in memory


@dataclass(frozen=True, eq=False, repr=False)
class StreamCorpus(Corpus):
    """The columns are those of val and test; train and restval are in the shards."""

    shards: Sequence[ShardInfo] = field(default=())

    def stream(self, splits: Sequence[str]) -> Stream:
        """The samples of train, restval or both."""
        return Stream(self.shards, splits)

    def split_sizes(self) -> dict[str, int]:
        """The number of images in each split that is not empty."""
        streamed = {name: n for name in STREAMED if (n := sum(shard.count([name]) for shard in self.shards))}
        return {**streamed, **super().split_sizes()}

    def split(self, *names: str) -> Corpus:
        """The images and texts of val or test; the others are a stream, which only training reads."""
        streamed = [name for name in names if name in STREAMED and self.split_sizes().get(name)]
        if streamed:
            raise DataError(
                f"{self.name}: {streamed[0]} is a stream of shards, which only training reads; use val or test, or the "
                "data that the shards were made of"
            )
        return super().split(*names)

    def take(self, images: Integers, texts: Integers) -> Corpus:
        """A selection of the images and texts in memory."""
        held = Corpus(**{part.name: getattr(self, part.name) for part in fields(Corpus)})
        return held.take(images, texts)

    def nothing(self) -> Corpus:
        """A corpus without images and texts: what of train is in memory."""
        return self.take(np.arange(0), np.arange(0))

    def digest(self) -> str:
        """A fingerprint of the names, counts and hashes of the shards, and of the content of val and test."""
        about = [
            (file_name(shard.name), shard.split, sorted(shard.samples.items()), shard.texts, shard.size, shard.sha256)
            for shard in self.shards
        ]
        return hashlib.sha256(json.dumps([super().digest(), about]).encode("utf-8", "surrogatepass")).hexdigest()


class HeldSamples:
    """Collects the samples of val and test, whose images stay in the shards if those are on this machine."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids: list[str] = []
        self._pictures: list[Picture] = []
        self._splits: list[str] = []
        self._image_groups: list[int] = []
        self._texts: list[str] = []
        self._text_splits: list[str] = []
        self._text_groups: list[int] = []
        self._groups: dict[str, int] = {}
        self._seen: dict[tuple[str, str], set[str]] = {}
        self._bytes = 0
        self._counts: dict[str, int] = {}

    def add(self, shard: str, sample: Sample) -> None:
        """Add a sample of val or test; RefusedError if they become too many."""
        count = self._counts[sample.split] = self._counts.get(sample.split, 0) + 1
        self._bytes += 0 if sample.image is None else sample.size
        if count > MAX_HELD or self._bytes > MAX_HELD_BYTES:
            limit = f"{MAX_HELD:,} samples" if count > MAX_HELD else f"{MAX_HELD_BYTES / 2**30:g} GB of other storage"
            raise RefusedError(
                f"{self._name}: {sample.split} has more than {limit}, and it is held in memory; give it fewer shards "
                "(name them val-..., or after #val=)"
            )
        name = f"{shard}:{sample.member}"
        content = sample.image
        picture = _FilePart(shard, sample.offset, sample.size) if content is None else _Bytes(content)
        # Samples without a group are a group of their own.
        key = f"group {sample.group}" if sample.group is not None else f"sample {shard} {sample.key}"
        group = self._groups.setdefault(key, len(self._groups))
        self._ids.append(sample.id if sample.id != sample.key else f"{file_name(shard)}:{sample.key}")
        self._pictures.append(StoredPicture(name, picture))
        self._splits.append(sample.split)
        self._image_groups.append(group)
        seen = self._seen.setdefault((key, sample.split), set()) if sample.group is not None else set()
        for text in sample.texts:
            if text not in seen:  # images of a group share its texts
                seen.add(text)
                self._texts.append(text)
                self._text_splits.append(sample.split)
                self._text_groups.append(group)

    def corpus(self, shards: Sequence[ShardInfo], problems: Sequence[Problem], address: str) -> StreamCorpus:
        """The corpus of these samples and of the streamed ones."""
        return StreamCorpus(
            name=self._name,
            image_ids=self._ids,
            image_groups=np.array(self._image_groups, np.int64),
            image_splits=np.array(self._splits, np.str_),
            texts=self._texts,
            text_groups=np.array(self._text_groups, np.int64),
            text_splits=np.array(self._text_splits, np.str_),
            pictures=self._pictures,
            problems=tuple(problems),
            address=address,
            shards=tuple(shards),
        )


@dataclass(frozen=True)
class _FilePart:
    """A part of a file on this machine."""

    file: str
    offset: int
    size: int

    def __call__(self) -> bytes:
        with Path(self.file).open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True)
class _Bytes:
    content: bytes

    def __call__(self) -> bytes:
        return self.content
