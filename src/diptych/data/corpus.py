"""The corpus: images, texts, and the relation between them.

An image and a text match when they share a group, and in no other case. A photo with five captions, three photos of a
person with six descriptions, a region with its phrases are all this one relation; nothing here counts texts an image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.errors import DataError, did_you_mean, location

SPLITS = ("train", "val", "test", "restval")

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


class Picture(Protocol):
    """One image that can be had as RGB pixels."""

    def load(self) -> Image.Image:
        """Decode to an upright RGB image, or raise ImageError with the reason."""
        ...


@dataclass(frozen=True)
class Box:
    """Where a thing of an image is, relative to the picture: from 0 to 1, left to right and top to bottom.

    `chain` is the name that phrases of the image's texts know the thing by; several things that are named together
    have one box around all of them.
    """

    chain: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Phrase:
    """A part of a text that names a thing: its words, the thing's chain, and the kinds it is of, such as people."""

    words: str
    chain: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Something wrong in a source that was left out or should be looked at, with its file and row."""

    file: str
    row: int | None
    message: str

    def __str__(self) -> str:
        return f"{location(self.file, self.row)}: {self.message}"


class Features:
    """Stored vectors, a row an image, kept where they are (often memory-mapped) until they are asked for."""

    def __init__(self, parts: Sequence[NDArray[np.floating]], rows: Integers | None = None) -> None:
        self._parts = list(parts)
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        self._rows = np.arange(self._starts[-1]) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image's features: (size,) or (regions, size)."""
        return tuple(self._parts[0].shape[1:])

    def take(self, images: Integers) -> Features:
        """The same features for fewer (or reordered) images; nothing is read."""
        return Features(self._parts, self._rows[images])

    def digest(self) -> bytes:
        """What identifies the values: the shape, and a few rows of them."""
        some = np.unique(np.linspace(0, len(self) - 1, 32).astype(np.int64)) if len(self) else np.arange(0)
        return str((len(self), self.shape)).encode() + self[some].tobytes()

    def __getitem__(self, images: Integers) -> Floats:
        return self._read(images, None)

    def at(self, images: Integers, regions: Integers) -> Floats:
        """One region of each of these images, (images, size), where an image has several; nothing else is read."""
        return self._read(images, regions)

    def _read(self, images: Integers, regions: Integers | None) -> Floats:
        rows = self._rows[images]
        out = np.empty((len(rows), *(self.shape if regions is None else self.shape[1:])), np.float32)
        part_of = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(part_of):
            here = part_of == part
            found = rows[here] - self._starts[part]
            out[here] = self._parts[part][found] if regions is None else self._parts[part][found, regions[here]]
        return out


@dataclass(frozen=True, eq=False)
class Corpus:
    """Images and texts in the order of their source, each with its group and its split.

    `pictures` or `features` (or both) say what an image looks like. `boxes` says, an image, where things are, and
    `phrases`, a text, which of its words name a thing; a phrase belongs to the box of the same chain in an image of the
    same group. `region_boxes` says where the regions of `features` lie, (regions, 4) an image: left, top, right and
    bottom, relative to the photo, zeros where nobody knows. Everything is columnar: row i of each image column is
    image i, row j of each text column is text j.
    `address` is what `open_corpus` opened, absolute if it is a path; a corpus made in Python has none.
    """

    name: str
    image_ids: Sequence[str]
    image_groups: Integers
    image_splits: NDArray[np.str_]
    texts: Sequence[str]
    text_groups: Integers
    text_splits: NDArray[np.str_]
    pictures: Sequence[Picture] | None = None
    features: Features | None = None
    boxes: Sequence[Sequence[Box]] | None = None
    phrases: Sequence[Sequence[Phrase]] | None = None
    region_boxes: Features | None = None
    problems: Sequence[Problem] = field(default=())
    address: str | None = None

    def __post_init__(self) -> None:
        images, texts = len(self.image_ids), len(self.texts)
        of_images = (self.image_groups, self.image_splits, self.pictures, self.features, self.boxes, self.region_boxes)
        of_texts = (self.text_groups, self.text_splits, self.phrases)
        for what, rows, columns in (("images", images, of_images), ("texts", texts, of_texts)):
            for column in columns:
                if column is not None and len(column) != rows:
                    raise DataError(f"{self.name}: a column of {len(column)} rows for {rows} {what}")

    def take(self, images: Integers, texts: Integers) -> Corpus:
        """The corpus of these images and texts, in this order."""
        return replace(
            self,
            image_ids=[self.image_ids[i] for i in images],
            image_groups=self.image_groups[images],
            image_splits=self.image_splits[images],
            texts=[self.texts[j] for j in texts],
            text_groups=self.text_groups[texts],
            text_splits=self.text_splits[texts],
            pictures=None if self.pictures is None else [self.pictures[i] for i in images],
            features=None if self.features is None else self.features.take(images),
            boxes=None if self.boxes is None else [self.boxes[i] for i in images],
            phrases=None if self.phrases is None else [self.phrases[j] for j in texts],
            region_boxes=None if self.region_boxes is None else self.region_boxes.take(images),
        )

    def split(self, *names: str) -> Corpus:
        """The part of the corpus in these splits; an unknown or empty selection is an error."""
        for name in names:
            if name not in SPLITS:
                raise DataError(f"{self.name}: no split {name!r}; {did_you_mean(name, SPLITS)}")
        images = np.flatnonzero(np.isin(self.image_splits, names))
        texts = np.flatnonzero(np.isin(self.text_splits, names))
        if not len(images) or not len(texts):
            have = ", ".join(f"{name} {count}" for name, count in self.split_sizes().items())
            raise DataError(
                f"{self.name}: split {'+'.join(names)} has no images or no texts (images: {have}); "
                "give the data a split column, or folders train/, val/ and test/"
            )
        return self.take(images, texts)

    def split_sizes(self) -> dict[str, int]:
        """The number of images in each split that has some."""
        return {name: n for name in SPLITS if (n := int(np.sum(self.image_splits == name)))}

    def matched(self) -> Corpus:
        """Without the images that have no text and the texts that have no image: what can be ranked."""
        images = np.flatnonzero(np.isin(self.image_groups, self.text_groups))
        texts = np.flatnonzero(np.isin(self.text_groups, self.image_groups))
        if len(images) == len(self.image_ids) and len(texts) == len(self.texts):
            return self
        return self.take(images, texts)

    def digest(self) -> str:
        """What identifies a corpus: ids, groups, splits, texts, stored features, boxes; pictures by their ids alone."""
        digest = hashlib.sha256()
        for column in (self.image_ids, self.image_splits, self.texts, self.text_splits):
            digest.update("\0".join(map(str, column)).encode("utf-8", "surrogatepass"))
            digest.update(b"\1")
        digest.update(self.image_groups.tobytes() + self.text_groups.tobytes())
        if self.features is not None:
            digest.update(self.features.digest())
        for named in (self.boxes, self.phrases):
            if named is not None:
                digest.update(repr([list(some) for some in named]).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()
