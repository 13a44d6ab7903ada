"""The data check: what a corpus holds, what its splits share, and everything that is wrong with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diptych.data.corpus import SPLITS, Corpus, Features, Integers, Picture, Problem
from diptych.data.images import PictureFile
from diptych.errors import ImageError

Progress = Callable[[int, int], None]

_WORKERS = min(8, os.cpu_count() or 1)
_BLOCK = 64  # images that a thread looks at before it reports
_EXAMPLES = 5  # of what splits share
_LINES = 50  # of each list in the terminal

_Look = tuple[bytes | None, Problem | None]  # the digest of an image's content, and what is wrong with it


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    images: int
    texts: int
    groups: int


@dataclass(frozen=True)
class Spread:
    """Where a number lies over all images or texts."""

    minimum: int
    median: float
    mean: float
    maximum: int


@dataclass(frozen=True)
class Shared:
    """What more than one split has: how many, and the first few."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Named:
    """How much is known of where the things are that the texts name."""

    phrases: int
    phrases_without_a_box: int
    boxes: int
    boxes_without_a_phrase: int
    images_without_a_box: int


@dataclass(frozen=True)
class Report:
    """What the check found; `to_json` holds all of it, `render` what fits a terminal."""

    name: str
    decoded: bool
    total: Size
    splits: dict[str, Size]
    texts_an_image: Spread
    words_a_text: Spread
    named: Named | None  # of a corpus that has phrases or boxes
    shared_texts: Shared
    shared_images: Shared
    shared_groups: Shared
    images_without_texts: tuple[str, ...]
    texts_without_images: tuple[str, ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return asdict(self)

    def render(self) -> RenderableType:
        """A summary for the terminal, with every problem on a line of its own up to a limit."""
        found = [
            *_listed("image without a text", self.images_without_texts),
            *_listed("text without an image", self.texts_without_images),
            *_listed("problem", [str(problem) for problem in self.problems]),
        ]
        return Group(self._sizes(), "", self._spreads(), *self._named(), "", *self._shared(), *found)

    def _sizes(self) -> Table:
        table = Table(title=Text(_printable(self.name), "bold"), title_justify="left")
        table.add_column("split")
        for column in ("images", "texts", "groups"):
            table.add_column(column, justify="right")
        for name, size in self.splits.items():
            table.add_row(name, f"{size.images:,}", f"{size.texts:,}", f"{size.groups:,}")
        table.add_section()
        table.add_row("all", f"{self.total.images:,}", f"{self.total.texts:,}", f"{self.total.groups:,}")
        return table

    def _spreads(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, spread in (("texts an image", self.texts_an_image), ("words a text", self.words_a_text)):
            median = f"median {spread.median:g}"
            table.add_row(name, f"{spread.minimum} to {spread.maximum}", median, f"mean {spread.mean:.1f}")
        return table

    def _named(self) -> Iterator[Text]:
        if (named := self.named) is not None:
            yield Text(f"phrases: {named.phrases:,}, {named.phrases_without_a_box:,} without a box")
            yield Text(
                f"boxes: {named.boxes:,}, {named.boxes_without_a_phrase:,} without a phrase; "
                f"images without a box: {named.images_without_a_box:,}"
            )

    def _shared(self) -> Iterator[Text]:
        for name, shared in (
            ("identical texts", self.shared_texts),
            ("identical images", self.shared_images),
            ("groups", self.shared_groups),
        ):
            style = "yellow" if shared.count else "green"
            yield Text(f"{name} in more than one split: {shared.count:,}", style)
            yield from (Text(f"  {_printable(example)}") for example in shared.examples)
        if not self.decoded:
            yield Text("images were not decoded", "yellow")


def check(corpus: Corpus, decode: bool = True, workers: int = _WORKERS, progress: Progress | None = None) -> Report:
    """Look at all of a corpus; with `decode`, every picture is decoded, else their files are only read.

    `progress` is called with the number of images that were looked at and the number of all of them.
    """
    digests, found = _look_at_all(corpus, decode, workers, progress)
    image_splits, text_splits = corpus.image_splits.tolist(), corpus.text_splits.tolist()
    texts_of = _counts(corpus.image_groups, corpus.text_groups)
    images_of = _counts(corpus.text_groups, corpus.image_groups)
    ids, texts = corpus.image_ids, corpus.texts
    groups = [*corpus.image_groups.tolist(), *corpus.text_groups.tolist()]
    return Report(
        name=corpus.name,
        decoded=decode,
        total=_size(corpus),
        splits={name: _size(corpus, name) for name in SPLITS if name in {*image_splits, *text_splits}},
        texts_an_image=_spread(texts_of),
        words_a_text=_spread(np.array([len(text.split()) for text in texts])),
        named=_named(corpus),
        shared_texts=_shared(texts, text_splits, texts),
        shared_images=_shared(digests, image_splits, ids),
        shared_groups=_shared(groups, image_splits + text_splits, [*ids, *texts]),
        images_without_texts=tuple(name for name, count in zip(ids, texts_of, strict=True) if not count),
        texts_without_images=tuple(text for text, count in zip(texts, images_of, strict=True) if not count),
        problems=(*corpus.problems, *found),
    )


def _look_at_all(
    corpus: Corpus, decode: bool, workers: int, progress: Progress | None
) -> tuple[list[bytes | None], list[Problem]]:
    """The digest of each image's content (of its picture, if it has both), and what is wrong with any."""
    images = len(corpus.image_ids)
    kinds: list[Callable[[range], list[_Look]]] = []
    if corpus.pictures is not None:
        kinds.append(partial(_look_at_pictures, corpus.image_ids, corpus.pictures, decode))
    if corpus.features is not None:
        kinds.append(partial(_look_at_features, corpus.image_ids, corpus.features))
    blocks = [range(start, min(start + _BLOCK, images)) for start in range(0, images, _BLOCK)]
    looks: list[_Look] = []
    with ThreadPoolExecutor(max(1, workers)) as pool:  # after Ctrl-C, map drops the blocks that have not begun
        for kind in kinds:
            for block in pool.map(kind, blocks):
                looks += block
                if progress is not None:
                    progress(len(looks), images * len(kinds))
    digests: list[bytes | None] = [digest for digest, _ in looks[:images]] if kinds else [None] * images
    return digests, [problem for _, problem in looks if problem is not None]


def _look_at_pictures(ids: Sequence[str], pictures: Sequence[Picture], decode: bool, block: range) -> list[_Look]:
    return [_look_at_picture(ids[image], pictures[image], decode) for image in block]


def _look_at_picture(name: str, picture: Picture, decode: bool) -> _Look:
    if not isinstance(picture, PictureFile):
        try:
            return _digest(picture.load().tobytes()), None
        except ImageError as reason:
            return None, Problem(name, None, str(reason))
    file = str(picture.path)
    try:
        if decode:
            picture.load()
        return _digest(picture.path.read_bytes()), None
    except ImageError as reason:
        return None, Problem(file, None, str(reason).removeprefix(f"{file}: "))
    except OSError as reason:
        return None, Problem(file, None, f"cannot be read ({reason.strerror})")


def _look_at_features(ids: Sequence[str], features: Features, block: range) -> list[_Look]:
    looks: list[_Look] = []
    for image, vector in zip(block, features[np.array(block)], strict=True):
        fine = np.isfinite(vector).all()
        problem = None if fine else Problem(ids[image], None, "features that are infinite or not numbers")
        looks.append((_digest(vector.tobytes()), problem))
    return looks


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _size(corpus: Corpus, split: str | None = None) -> Size:
    images = np.full(len(corpus.image_ids), True) if split is None else corpus.image_splits == split
    texts = np.full(len(corpus.texts), True) if split is None else corpus.text_splits == split
    groups = np.union1d(corpus.image_groups[images], corpus.text_groups[texts])
    return Size(int(images.sum()), int(texts.sum()), len(groups))


def _named(corpus: Corpus) -> Named | None:
    if corpus.boxes is None and corpus.phrases is None:
        return None
    boxes = corpus.boxes or [()] * len(corpus.image_ids)
    phrases = corpus.phrases or [()] * len(corpus.texts)
    boxed = [(g, box.chain) for g, some in zip(corpus.image_groups.tolist(), boxes, strict=True) for box in some]
    said = [(g, phrase.chain) for g, some in zip(corpus.text_groups.tolist(), phrases, strict=True) for phrase in some]
    seen, named = set(boxed), set(said)
    return Named(
        phrases=len(said),
        phrases_without_a_box=sum(thing not in seen for thing in said),
        boxes=len(boxed),
        boxes_without_a_phrase=sum(thing not in named for thing in boxed),
        images_without_a_box=sum(not some for some in boxes),
    )


def _counts(groups: Integers, others: Integers) -> Integers:
    """How many of the others are in the group of each."""
    known, counts = np.unique(others, return_counts=True)
    table = dict(zip(known.tolist(), counts.tolist(), strict=True))
    return np.array([table.get(group, 0) for group in groups.tolist()], np.int64)


def _spread(numbers: Integers) -> Spread:
    if not len(numbers):
        return Spread(0, 0.0, 0.0, 0)
    return Spread(int(numbers.min()), float(np.median(numbers)), float(numbers.mean()), int(numbers.max()))


def _shared(keys: Sequence[Hashable], splits: Sequence[str], names: Sequence[str]) -> Shared:
    """The keys that are in several splits, each shown by the first name that it has in each of them."""
    first: dict[Hashable, dict[str, int]] = {}
    for i, (key, split) in enumerate(zip(keys, splits, strict=True)):
        if key is not None:
            first.setdefault(key, {}).setdefault(split, i)
    shared = [places for places in first.values() if len(places) > 1]
    return Shared(len(shared), tuple(_example(places, names) for places in shared[:_EXAMPLES]))


def _example(places: dict[str, int], names: Sequence[str]) -> str:
    here = {split: names[places[split]] for split in SPLITS if split in places}
    if len(set(here.values())) == 1:
        return f"{names[min(places.values())]} ({', '.join(here)})"
    return ", ".join(f"{name} ({split})" for split, name in here.items())


def _listed(what: str, lines: Sequence[str]) -> Iterator[Text]:
    """A list under its heading; what is beyond the limit is counted."""
    yield Text(f"{what}: {len(lines):,}" if lines else f"{what}: none", "red" if lines else "green")
    yield from (Text(f"  {_printable(line)}") for line in lines[:_LINES])
    if len(lines) > _LINES:
        yield Text(f"  ... and {len(lines) - _LINES:,} more; --json lists all", "yellow")


def _printable(line: str) -> str:
    """A line without what could steer a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
