"""The corpus: images, texts, and the relation between them.

An image and a text match when they share a group, and in no other case. A photo with five captions, three photos of a
person with six descriptions, and a region with its phrases are all this one relation: an image can have any number of
texts, and a text any number of images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.splitting import SPLIT_IT, SplitOrigin, SplitRule, apply_rule, size_list
from diptych.errors import DataError, did_you_mean, location

SPLITS = ("train", "val", "test", "restval")
_HASHED_AT_ONCE = 100_000  # rows: a column may be larger than the rest of memory

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


class Picture(Protocol):
    """An image that can be loaded as RGB pixels."""

    def load(self) -> Image.Image:
        """Decode to an upright RGB image, or raise ImageError with the reason."""
        ...


@dataclass(frozen=True)
class Box:
    """Where an entity is in an image, relative to the image: from 0 to 1, left to right and top to bottom.

    `chain` identifies the entity (its coreference chain in Flickr30K Entities): phrases of the same chain name it.
    Several objects that are named together share one box around all of them.
    """

    chain: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Phrase:
    """A part of a text that names an entity: the phrase, the entity's chain, and its kinds, such as people."""

    text: str
    chain: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Something wrong in a source, with its file and row: left out, or worth a look."""

    file: str
    row: int | None
    message: str

    def __str__(self) -> str:
        return f"{location(self.file, self.row)}: {self.message}"


class Features:
    """Stored vectors, one row per image, left on disk (if memory-mapped) until they are read."""

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
        """The features of a selection of images, in that order; nothing is read."""
        return Features(self._parts, self._rows[images])

    def digest(self) -> bytes:
        """A fingerprint of the values: the shape and a sample of up to 32 rows."""
        sample = np.unique(np.linspace(0, len(self) - 1, 32).astype(np.int64)) if len(self) else np.arange(0)
        return str((len(self), self.shape)).encode() + self[sample].tobytes()

    def __getitem__(self, images: Integers) -> Floats:
        return self._read(images, None)

    def read_regions(self, images: Integers, regions: Integers) -> Floats:
        """Region `regions[i]` of image `images[i]`, for each i: (images, size). Nothing else is read."""
        return self._read(images, regions)

    def _read(self, images: Integers, regions: Integers | None) -> Floats:
        rows = self._rows[images]
        values = np.empty((len(rows), *(self.shape if regions is None else self.shape[1:])), np.float32)
        part_of_row = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(part_of_row):
            inside = part_of_row == number
            part, part_rows = self._parts[number], rows[inside] - self._starts[number]
            values[inside] = part[part_rows] if regions is None else part[part_rows, regions[inside]]
        return values


@dataclass(frozen=True, eq=False)
class Corpus:
    """Images and texts in the order of their source, each with its group and its split.

    The corpus is columnar: row i of each image column is image i, row j of each text column is text j.
    `pictures` or `features` (or both) hold what an image looks like. `boxes` holds the entities of each image and
    `phrases` those of each text; a phrase belongs to the box of the same chain in an image of the same group.
    `region_boxes` holds where the regions of `features` lie, (regions, 4) per image: left, top, right, bottom, relative
    to the image, zeros if unknown.
    `text_ids` are the names that the source gives its texts, such as COCO's annotation ids, if it names all of them.
    `address` is what `open_corpus` opened, absolute if it is a path; a corpus made in Python has none.
    `split_origin` tells who decided on the splits: the source of the data, a default (a hash of names), or a rule.
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
    split_origin: SplitOrigin = "source"
    text_ids: Sequence[str] | None = None

    def __repr__(self) -> str:
        sizes = f"{len(self.image_ids):,} images, {len(self.texts):,} texts; images: {size_list(self)}"
        return f"Corpus({self.name!r}: {sizes})"

    def __post_init__(self) -> None:
        images, texts = len(self.image_ids), len(self.texts)
        image_columns = (
            *(self.image_groups, self.image_splits, self.pictures),
            *(self.features, self.boxes, self.region_boxes),
        )
        text_columns = (self.text_groups, self.text_splits, self.phrases, self.text_ids)
        for what, rows, columns in (("images", images, image_columns), ("texts", texts, text_columns)):
            for column in columns:
                if column is not None and len(column) != rows:
                    raise DataError(f"{self.name}: a column has {len(column)} rows, but there are {rows} {what}")

    @classmethod
    def from_pairs(  # noqa: PLR0913 (columns, by keyword)
        cls,
        images: Iterable[Any] | None,
        texts: Iterable[Any],
        splits: Iterable[Any] | str | None = None,
        *,
        groups: Iterable[Any] | None = None,
        ids: Iterable[Any] | None = None,
        features: Any = None,
        folder: Path | str | None = None,
        name: str = "pairs",
        errors: Literal["raise", "skip"] = "raise",
    ) -> Corpus:
        """A corpus of images and their texts: entry i of each argument belongs to pair i.

        An image is a path (relative to `folder`, which defaults to the working directory), a PIL image, a uint8 array
        of shape (height, width, 3), the bytes of a file, or an object whose `load()` returns a PIL image. A text is a
        string, or a list of them. Pairs with the same path, id or object are one image with several texts. `splits`
        names the split of each pair, or that of all; without it, a hash decides as for tables (see `with_splits`).
        `features` are precomputed, of shape (pairs, size) or (pairs, regions, size); `images` may be None then. A pair
        that cannot be used raises a DataError, or becomes one of the `problems` with `errors="skip"`.
        """
        from diptych.data.from_python import corpus_from_pairs

        return corpus_from_pairs(
            *(images, texts, splits),
            groups=groups,
            ids=ids,
            features=features,
            folder=folder,
            name=name,
            errors=errors,
        )

    @classmethod
    def from_dataframe(  # noqa: PLR0913 (columns, by keyword)
        cls,
        frame: Any,
        image: str = "image",
        text: str = "text",
        *,
        split: str | None = None,
        group: str | None = None,
        id: str | None = None,
        folder: Path | str | None = None,
        name: str = "dataframe",
        errors: Literal["raise", "skip"] = "raise",
    ) -> Corpus:
        """A corpus of a table in memory: a data frame of pandas or polars, or a dict of columns.

        The arguments name columns, whose values are those of `from_pairs`. The columns `split` and `group` are used
        if there are any; rows with the same `id` are one image.
        """
        from diptych.data.from_python import ColumnNames, corpus_from_columns

        return corpus_from_columns(frame, ColumnNames(image, text, split, group, id), folder, name, errors)

    @classmethod
    def from_records(  # noqa: PLR0913 (columns, by keyword)
        cls,
        records: Iterable[Any],
        image: str = "image",
        text: str = "text",
        *,
        split: str | None = None,
        group: str | None = None,
        id: str | None = None,
        folder: Path | str | None = None,
        name: str = "records",
        errors: Literal["raise", "skip"] = "raise",
    ) -> Corpus:
        """A corpus of any iterable of dicts, dataclasses, objects or tuples (image, text) or (image, text, split).

        The arguments name keys or attributes, as `from_dataframe` names columns.
        """
        from diptych.data.from_python import ColumnNames, corpus_from_records

        return corpus_from_records(records, ColumnNames(image, text, split, group, id), folder, name, errors)

    @classmethod
    def from_huggingface(
        cls,
        dataset: Any,
        image: str = "image",
        text: str = "caption",
        *,
        split: str | None = None,
        group: str | None = None,
        id: str | None = None,
        name: str = "dataset",
        errors: Literal["raise", "skip"] = "raise",
    ) -> Corpus:
        """A corpus of a `Dataset` or `DatasetDict` of Hugging Face; its images are decoded when they are read.

        The arguments name columns, as for `from_dataframe`. The datasets of a dict are splits, by their names (or by
        the column `split`, if it is named); a single dataset has no splits unless it has such a column.
        """
        from diptych.data.from_python import ColumnNames
        from diptych.data.huggingface import corpus_from_huggingface

        return corpus_from_huggingface(dataset, ColumnNames(image, text, split, group, id), name, errors)

    def take(self, images: Integers, texts: Integers) -> Corpus:
        """A selection of the images and texts, in the given order."""
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
            text_ids=None if self.text_ids is None else [self.text_ids[j] for j in texts],
        )

    def split(self, *names: str) -> Corpus:
        """The images and texts of the named splits; an unknown name or an empty selection raises a DataError."""
        for name in names:
            if name not in SPLITS:
                raise DataError(f"{self.name}: no split {name!r}; {did_you_mean(name, SPLITS)}")
        images = np.flatnonzero(np.isin(self.image_splits, names))
        texts = np.flatnonzero(np.isin(self.text_splits, names))
        if not len(images) or not len(texts):
            raise DataError(
                f"{self.name}: split {'+'.join(names)} has no images or no texts (images: {size_list(self)}); "
                "give the data a split column, or folders train/, val/ and test/"
                + ("" if self.split_origin == "source" else f", or {SPLIT_IT}")
            )
        return self.take(images, texts)

    def split_sizes(self) -> dict[str, int]:
        """The number of images in each split that is not empty."""
        return {name: n for name in SPLITS if (n := int(np.sum(self.image_splits == name)))}

    def with_splits(self, *, val: float = 0.0, test: float = 0.0, seed: int = 0) -> Corpus:
        """The corpus with this share of its groups in val and in test, and all others in train.

        A group (an image with its texts) is in one split. The same images and seed always give the same splits, in
        whichever order they come. A corpus whose source has splits is refused.
        """
        return apply_rule(self, SplitRule(val, test, seed))

    def matched(self) -> Corpus:
        """The corpus without images that have no text and texts that have no image: those cannot be ranked."""
        images = np.flatnonzero(np.isin(self.image_groups, self.text_groups))
        texts = np.flatnonzero(np.isin(self.text_groups, self.image_groups))
        if len(images) == len(self.image_ids) and len(texts) == len(self.texts):
            return self
        return self.take(images, texts)

    def digest(self) -> str:
        """A fingerprint of image ids, groups, splits, texts, stored features, boxes and phrases; not of pixels.

        Runs store it to recognise their corpus, so the hashed bytes must never change.
        """
        digest = hashlib.sha256()
        for column in (self.image_ids, self.image_splits, self.texts, self.text_splits):
            for start in range(0, len(column), _HASHED_AT_ONCE):
                block = "\0".join(map(str, column[start : start + _HASHED_AT_ONCE]))
                digest.update((b"\0" if start else b"") + block.encode("utf-8", "surrogatepass"))
            digest.update(b"\1")
        digest.update(self.image_groups.tobytes() + self.text_groups.tobytes())
        if self.features is not None:
            digest.update(self.features.digest())
        if self.boxes is not None:
            digest.update(repr([list(boxes) for boxes in self.boxes]).encode("utf-8", "surrogatepass"))
        if self.phrases is not None:
            digest.update(_phrases_for_digest(self.phrases).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def _phrases_for_digest(phrases: Sequence[Sequence[Phrase]]) -> str:
    # The form of repr() when a phrase's text was called `words`: digests of runs that exist depend on it.
    of_texts = (
        ", ".join(f"Phrase(words={phrase.text!r}, chain={phrase.chain!r}, kinds={phrase.kinds!r})" for phrase in some)
        for some in phrases
    )
    return f"[{', '.join(f'[{some}]' for some in of_texts)}]"
