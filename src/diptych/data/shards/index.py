"""index.json beside shards: how many samples of which split each has, its size and its hash."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.data.corpus import SPLITS
from diptych.data.shards.names import read_bytes
from diptych.errors import DataError
from diptych.files import write_text

INDEX = "index.json"
_FORMAT, _VERSION = "diptych shards", 1


@dataclass(frozen=True)
class ShardInfo:
    """A shard: the number of usable samples by split and of their texts, and the file's size and SHA-256, if known.

    `split` is that of all samples, if they share one.
    """

    name: str
    samples: dict[str, int]
    texts: int
    size: int | None = None
    sha256: str | None = None
    split: str | None = None

    @property
    def file(self) -> str:
        """The name without the folder."""
        return file_name(self.name)

    def count(self, splits: Sequence[str]) -> int:
        """The number of samples in some splits."""
        return sum(self.samples.get(split, 0) for split in splits)

    def to_json(self) -> dict[str, Any]:
        """The shard as a line of the index; its name without the folder."""
        return {
            "name": self.file,
            "split": self.split,
            "samples": self.samples,
            "texts": self.texts,
            "bytes": self.size,
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any], folder: str) -> ShardInfo:
        """The shard of a line of an index that is in this folder; ValueError, KeyError or TypeError if it is none."""
        name, samples, split = found["name"], found["samples"], found["split"]
        if not isinstance(name, str) or "/" in name or "\\" in name or not set(samples) <= set(SPLITS):
            raise ValueError(name)
        counts = {split: int(count) for split, count in samples.items()}
        if any(count < 0 for count in counts.values()) or split not in (None, *SPLITS):
            raise ValueError(name)
        return cls(folder + name, counts, int(found["texts"]), found["bytes"], found["sha256"], split)


def folder_of(name: str) -> str:
    """The folder of a shard with its slash, empty for the working folder."""
    folder, slash, _ = name.rpartition("/")
    return folder + slash


def file_name(name: str) -> str:
    """The name of a shard without its folder."""
    return name.rpartition("/")[2]


def write_index(folder: Path, shards: Sequence[ShardInfo], source: dict[str, Any]) -> None:
    """Write the index of a folder; `source` says what the shards were made of."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "source": source,
        "shards": [shard.to_json() for shard in shards],
    }
    write_text(folder / INDEX, json.dumps(content, indent=1, ensure_ascii=True) + "\n")


def read_index(folder: str) -> dict[str, ShardInfo] | None:
    """The shards in the index of a folder by name; None if the folder has no index of shards."""
    content = read_bytes(folder + INDEX)
    if content is None:
        return None
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        return None
    if found.get("version") != _VERSION:
        raise DataError(f"{folder}{INDEX}: of version {found.get('version')}; this is read by another Diptych")
    try:
        shards = [ShardInfo.from_json(line, folder) for line in found["shards"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"{folder}{INDEX}: damaged; remove it, and the shards are read to count their samples"
        ) from None
    return {shard.name: shard for shard in shards}


def read_source(folder: Path) -> dict[str, Any] | None:
    """What the shards of a folder were made of, if it has an index."""
    if read_index(f"{folder}/") is None:
        return None
    source = json.loads((folder / INDEX).read_text(encoding="utf-8")).get("source")
    return source if isinstance(source, dict) else None
