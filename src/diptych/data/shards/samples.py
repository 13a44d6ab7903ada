"""The samples of a shard: members that share a name up to the first dot are one sample, as WebDataset has it.

`000123.jpg` is the image of a sample, and `000123.txt` has its texts, one per line; or `000123.json` has them, as
`text`, `texts`, `caption` or `captions`. The JSON may also say the `id`, the `group` and the `split` of the sample.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from diptych.data.corpus import Problem
from diptych.data.file_kinds import IMAGE_SUFFIXES, RAW_SUFFIXES
from diptych.data.parsing import clean_text, hashed_split, json_object, non_empty, split_name
from diptych.data.shards.tar import Member, TarReader
from diptych.errors import DataError
from diptych.text.control_characters import has_control_characters

MAX_IMAGE, MAX_TEXT = 256 * 2**20, 2**20  # bytes of a member
PICKLES = frozenset({"pyd", "pickle", "pkl", "pth", "pt", "joblib", "dill"})

IMAGE_EXTENSIONS = frozenset(suffix[1:] for suffix in IMAGE_SUFFIXES | RAW_SUFFIXES)
_TEXT_KEYS = ("texts", "captions", "text", "caption")


class RefusedError(DataError):
    """Shards that are not read at all, unlike damaged ones: they have pickles, or more of val than memory holds."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Sample:
    """An image with its texts. The image is None if it was not asked for; its content begins at `offset` of the shard.

    `group` is that of the corpus that the shard was made of, if the sample shares it with others.
    """

    key: str
    member: str  # the name of the image in the shard
    image: bytes | None
    offset: int
    size: int
    texts: tuple[str, ...]
    split: str
    id: str
    group: str | None = None

    def group_number(self, number: int) -> int:
        """The group as an integer: that of its name, or one for the sample alone, given the sample's number."""
        if self.group is None:
            return -1 - number
        return int.from_bytes(hashlib.blake2b(self.group.encode(), digest_size=8).digest(), "big") >> 1


@dataclass
class _Draft:
    """The members of a sample so far."""

    key: str
    images: list[Member] = field(default_factory=list)
    content: bytes | None = None
    text: bytes | None = None
    about: bytes | None = None
    problem: str | None = None

    def add(self, member: Member, extension: str, reader: TarReader, load_image: bool) -> None:
        """Add the member that the reader is at, if it is part of a sample."""
        if extension in IMAGE_EXTENSIONS:
            self._check(member, MAX_IMAGE)
            self.images.append(member)
            if load_image and self.problem is None and len(self.images) == 1:
                self.content = reader.read()
        elif extension in ("txt", "json"):
            self._check(member, MAX_TEXT)
            if self.problem is None and extension == "txt":
                self.text = reader.read()
            elif self.problem is None:
                self.about = reader.read()

    def _check(self, member: Member, limit: int) -> None:
        if member.size > limit:
            self.problem = f"{member.name!r} has {member.size:,} bytes, and {limit:,} are the limit"

    def finish(self, default_split: str | None) -> Sample:
        """The sample; DataError if it has no image, no text, or another problem."""
        if self.problem:
            raise DataError(self.problem)
        if len(self.images) != 1:
            several = ", ".join(repr(member.name) for member in self.images)
            raise DataError(f"several images ({several})" if several else "no image")
        if not self.images[0].size:
            raise DataError("the image is empty (0 bytes)")
        about = self._about()
        texts = _texts(self.text, about)
        group, split = about.get("group"), default_split
        if split is None:
            split = split_name(about["split"]) if "split" in about else hashed_split(self.key)
        image = self.images[0]
        name = str(about["id"]) if "id" in about else self.key
        return Sample(
            *(self.key, image.name, self.content, image.offset, image.size, texts, split),
            id=non_empty(name, "id"),
            group=None if group is None else non_empty(str(group), "group"),
        )

    def _about(self) -> dict[str, object]:
        try:
            return {} if self.about is None else json_object(json.loads(self.about))
        except (ValueError, RecursionError) as reason:
            raise DataError(f"its JSON cannot be read ({reason})") from None


def _texts(content: bytes | None, about: dict[str, object]) -> tuple[str, ...]:
    if content is not None:
        found: object = content.decode("utf-8-sig", errors="surrogateescape").split("\n")
    else:
        found = next((about[key] for key in _TEXT_KEYS if about.get(key)), None)
    lines = found if isinstance(found, list) else [] if found is None else [found]
    texts = tuple(dict.fromkeys(clean_text(line) for line in lines if line and not str(line).isspace()))
    if not texts:
        raise DataError("no text")
    return texts


def read_samples(
    file: BinaryIO,
    shard: str,
    size: int | None = None,
    *,
    split: str | None = None,
    wanted: frozenset[str] | None = None,
    load_image: Callable[[int], bool] = lambda _: True,
    report: Callable[[Problem], None] = lambda _: None,
) -> Iterator[Sample]:
    """The usable samples of a shard in order, of the `wanted` splits if given; `report` is told of the others.

    `split` is that of all samples; by default each names its own, or a hash of its key decides. Images are read if
    `load_image` says so of the sample's number among those that are yielded. DamagedShardError ends a shard that is cut
    short; a RefusedError ends everything.
    """
    reader, number = TarReader(file, shard, size), 0
    draft: _Draft | None = None
    for member in reader:
        key, extension = _key(member.name)
        if PICKLES.intersection(extension.split(".")):
            raise RefusedError(
                f"{shard}: {member.name!r} is a pickle, which could run code when it is opened; shards hold images, "
                ".txt and .json"
            )
        if not member.is_file:
            continue
        if draft is not None and draft.key != key:
            if (sample := _finished(draft, shard, split, report)) and (wanted is None or sample.split in wanted):
                yield sample
                number += 1
            draft = None
        if draft is None:
            draft = _Draft(key, problem=_bad_name(member.name))
        draft.add(member, extension, reader, load_image(number))
    last = None if draft is None else _finished(draft, shard, split, report)
    if last is not None and (wanted is None or last.split in wanted):
        yield last


def _finished(draft: _Draft, shard: str, split: str | None, report: Callable[[Problem], None]) -> Sample | None:
    if not (draft.images or draft.text or draft.about or draft.problem):
        return None  # a member of another kind, such as a README
    try:
        return draft.finish(split)
    except DataError as reason:
        report(Problem(f"{shard}:{_printable(draft.key)}", None, str(reason)))
        return None


def _key(name: str) -> tuple[str, str]:
    """The key of a sample and the ending of one of its members: everything after the first dot of the file's name."""
    folder, slash, file = name.rpartition("/")
    stem, _, extension = file.partition(".")
    return folder + slash + stem, extension.lower()


def _bad_name(name: str) -> str | None:
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        return f"the name {name!r} leads out of the shard"
    return "the name has control characters" if has_control_characters(name) else None


def _printable(name: str) -> str:
    return repr(name)[1:-1] if has_control_characters(name) else name
