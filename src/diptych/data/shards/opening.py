"""Opens shards as a corpus: counts their samples, unless their index.json knows, and reads val and test."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus, Problem
from diptych.data.parsing import SPLIT_NAMES
from diptych.data.shards.corpus import HELD, STREAMED, HeldSamples
from diptych.data.shards.index import INDEX, ShardInfo, file_name, folder_of, read_index
from diptych.data.shards.names import is_remote, open_shard, shard_names, shard_size
from diptych.data.shards.samples import RefusedError, read_samples
from diptych.data.shards.stream import storage_errors
from diptych.errors import DataError
from diptych.progress import ProgressCallback

MAX_PROBLEMS = 1000  # that are kept of damaged samples; the others are counted


@dataclass(frozen=True)
class ShardAddress:
    """What an address of shards names: a pattern, or the index of a folder, and the pattern of the val shards."""

    pattern: str
    val: str | None = None

    @classmethod
    def parse(cls, address: Address) -> ShardAddress:
        """Read `PATTERN` or `PATTERN#val=PATTERN`; patterns on this machine become absolute."""
        pattern, _, option = (address.text or str(address.path)).partition("#")
        if option and not option.startswith("val="):
            raise DataError(f"{pattern}: after the #, shards have val=PATTERN, the val shards, not {option!r}")
        val = option.removeprefix("val=") or None
        return cls(_absolute(pattern), None if val is None else _absolute(val))

    def __str__(self) -> str:
        return self.pattern if self.val is None else f"{self.pattern}#val={self.val}"

    @property
    def name(self) -> str:
        """A short name for messages."""
        whole = self.pattern.removesuffix(f"/{INDEX}").rstrip("/")
        is_pattern = any(sign in file_name(whole) for sign in "{*?[")
        return file_name(folder_of(whole).rstrip("/") if is_pattern else whole) or whole


def open_shards(address: Address, progress: ProgressCallback | None = None) -> Corpus:
    """The corpus of shards. A shard that is missing or damaged becomes a problem; one with pickles is refused."""
    parsed = ShardAddress.parse(address)
    shards = _listed(parsed)
    held, problems = HeldSamples(parsed.name), _Problems()
    infos = []
    for number, shard in enumerate(shards):
        infos.append(_counted(shard, held, problems) if shard.size is None else _indexed(shard, held, problems))
        if progress is not None:
            progress(number + 1, len(shards))
    if not any(info.count((*STREAMED, *HELD)) for info in infos):
        raise DataError(f"{parsed.pattern}: no usable sample in it; first problem: {problems.first()}")
    return held.corpus(infos, problems.all(), str(parsed))


def _absolute(pattern: str) -> str:
    return pattern if is_remote(pattern) else str(Path(pattern).expanduser().absolute())


def _listed(address: ShardAddress) -> list[ShardInfo]:
    """The shards that an address names; those of an index with their counts and sizes."""
    pattern = address.pattern
    if not pattern.endswith(".tar"):
        folder = pattern.removesuffix(INDEX).rstrip("/") + "/"
        index = read_index(folder)
        if index is None:
            raise DataError(f"{pattern}: neither shards (.tar) nor a folder with the {INDEX} of some")
        names = list(index)
    else:
        names = shard_names(pattern)
    val = [] if address.val is None else shard_names(address.val)
    names = list(dict.fromkeys([*names, *val]))
    folders = list(dict.fromkeys(map(folder_of, names)))
    known = {name: shard for folder in folders for name, shard in (read_index(folder) or {}).items()}
    splits = {name: "val" if name in val else split_of_name(name) for name in names}
    default = "train" if any(splits.values()) else None  # otherwise each sample says, or a hash
    infos = (known.get(name) or ShardInfo(name, {}, 0, split=splits[name] or default) for name in names)
    return [_as_val(info) if info.name in val else info for info in infos]


def _as_val(shard: ShardInfo) -> ShardInfo:
    return replace(shard, split="val", samples={"val": sum(shard.samples.values())} if shard.samples else {})


def split_of_name(name: str) -> str | None:
    """The split that a shard's name says: `cc3m-train-0001.tar`, or `val/0001.tar`.

    >>> split_of_name("shards/cc3m-train-0001.tar"), split_of_name("shards/dev/1.tar"), split_of_name("1.tar")
    ('train', 'val', None)
    """
    folder, _, file = name.rpartition("/")
    words = [word for word in re.split("[^a-z]+", file.lower()) if word in SPLIT_NAMES]
    words = words or [word for word in [folder.rpartition("/")[2].lower()] if word in SPLIT_NAMES]
    return SPLIT_NAMES[words[0]] if len(set(words)) == 1 else None


class _Problems:
    """The problems of shards, of which the first ones are kept."""

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._more = 0

    def add(self, problem: Problem) -> None:
        """Note a problem."""
        if len(self._kept) < MAX_PROBLEMS:
            self._kept.append(problem)
        else:
            self._more += 1

    def first(self) -> str:
        """The first problem."""
        return str(self._kept[0]) if self._kept else "the shards are empty"

    def all(self) -> list[Problem]:
        """All problems; beyond the limit, their number."""
        more = Problem("the shards", None, f"{self._more:,} more problems of samples")
        return [*self._kept, more] if self._more else self._kept


def _counted(shard: ShardInfo, held: HeldSamples, problems: _Problems) -> ShardInfo:
    """Count the samples of a shard in one pass, which reads no images of train."""
    samples, texts = dict[str, int](), 0
    size = shard_size(shard.name)
    loads = is_remote(shard.name) and shard.split not in STREAMED
    try:
        with open_shard(shard.name) as file:
            for sample in read_samples(
                file, shard.name, size, split=shard.split, load_image=lambda _: loads, report=problems.add
            ):
                samples[sample.split] = samples.get(sample.split, 0) + 1
                texts += len(sample.texts)
                if sample.split in HELD:
                    held.add(shard.name, sample)
    except RefusedError:
        raise
    except storage_errors(shard.name) as reason:
        count = sum(samples.values())
        used = f"the {count:,} samples before that are used" if count else "it is left out"
        problems.add(Problem(shard.name, None, f"{_why(shard.name, reason)}; {used}"))
    return replace(shard, samples=samples, texts=texts, size=size)


def _indexed(shard: ShardInfo, held: HeldSamples, problems: _Problems) -> ShardInfo:
    """Compare a shard with its line in the index, and read its val and test."""
    size = shard_size(shard.name)
    if size is None:
        problems.add(Problem(shard.name, None, f"missing; its {sum(shard.samples.values()):,} samples are left out"))
    elif size != shard.size:
        message = f"has {size:,} bytes, and {INDEX} says {shard.size:,}; what can be read of it is used"
        problems.add(Problem(shard.name, None, message))
    if size is None or not shard.count(HELD):
        return shard
    try:
        with open_shard(shard.name) as file:
            for sample in read_samples(
                file,
                shard.name,
                size,
                split=shard.split,
                wanted=frozenset(HELD),
                load_image=lambda _: is_remote(shard.name),
                report=problems.add,
            ):
                held.add(shard.name, sample)
    except RefusedError:
        raise
    except storage_errors(shard.name) as reason:
        problems.add(Problem(shard.name, None, f"{_why(shard.name, reason)}; the samples before that are used"))
    return shard


def _why(name: str, reason: Exception) -> str:
    if isinstance(reason, FileNotFoundError):
        return "missing"
    if isinstance(reason, OSError):
        return f"cannot be read ({reason.strerror or reason})"
    return str(reason).removeprefix(f"{name}: ")
