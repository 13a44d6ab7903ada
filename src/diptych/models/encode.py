"""Encode long lists of images and texts, and score them, in batches: memory does not grow with their number.

Threads read and decode images ahead while the model computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import NamedTuple

from diptych.data.corpus import Floats, Picture
from diptych.data.images import load_for_side
from diptych.data.read_ahead import read_ahead
from diptych.errors import DataError, ImageError
from diptych.models.embeddings import Embeddings, from_array, to_array
from diptych.models.engines.engine import Encodings, Engine
from diptych.progress import ProgressCallback

OnError: TypeAlias = Literal["raise", "skip"]

CROPS_PER_BATCH = 32  # threads wait for each other less often than with 16

# Scores are computed in blocks of this many images and texts.
IMAGES_PER_BLOCK = 512
TEXTS_PER_BLOCK = 2560

Rows = TypeVar("Rows", bound="Embeddings")


class EncodedImages(NamedTuple, Generic[Rows]):
    """What `Model.encode_images(..., errors="skip")` returns.

    Row k of `embeddings` belongs to the image at position `kept[k]` of the list; `skipped` has the reason for every
    other position.
    """

    embeddings: Rows
    kept: list[int]
    skipped: dict[int, str]


class TextOptions(TypedDict, total=False):
    """The options of `Model.encode_texts` that do not change the type of the result."""

    batch_size: int | None
    progress: bool | ProgressCallback | None
    normalize: bool


class ImageOptions(TextOptions, total=False):
    """Those of `Model.encode_images`."""

    workers: int | None


def images_per_batch(prepared: NDArray[Any]) -> int:
    """How many images to encode at once, given one as the model reads it: (crops, 3, side, side) or anything else."""
    return max(1, CROPS_PER_BATCH // (len(prepared) if prepared.ndim == 4 else 1))


def encode_pictures(
    engine: Engine,
    pictures: Sequence[Picture],
    *,
    batch_size: int | None = None,
    workers: int = 0,
    errors: OnError = "raise",
    progress: ProgressCallback | None = None,
) -> tuple[Floats, dict[int, str]]:
    """The embeddings of the readable pictures, and why others were skipped, by their position."""
    if errors not in ("raise", "skip"):
        raise DataError(f"errors={errors!r}: not one of 'raise', 'skip'")
    check_count("batch_size", batch_size, 1)
    check_count("workers", workers, 0)
    size = engine.decode_size

    def read(picture: Picture) -> NDArray[Any] | ImageError:
        try:
            return engine.preprocess(load_for_side(picture, size))
        except ImageError as reason:
            return reason

    parts: list[Encodings] = []
    skipped: dict[int, str] = {}
    batch: list[NDArray[Any]] = []
    for position, prepared in enumerate(read_ahead(read, pictures, workers)):
        if not isinstance(prepared, ImageError):
            batch.append(prepared)
        elif errors == "raise":
            raise prepared
        else:
            skipped[position] = str(prepared)
        if batch and (len(batch) >= (batch_size or images_per_batch(batch[0])) or position == len(pictures) - 1):
            parts.append(engine.encode_preprocessed(batch))
            batch = []
        if progress and not batch:
            progress(position + 1, len(pictures))
    if not parts:
        blank = engine.preprocess(Image.new("RGB", (64, 64)))
        return to_array(engine.encode_preprocessed([blank]))[:0], skipped
    return to_array(Encodings.concatenate(parts)), skipped


def encode_texts(
    engine: Engine, texts: Sequence[str], *, batch_size: int | None = None, progress: ProgressCallback | None = None
) -> Floats:
    """The embeddings of texts."""
    check_count("batch_size", batch_size, 1)
    if not texts:
        return to_array(engine.encode_texts(["a"]))[:0]
    return to_array(engine.encode_texts(texts, batch_size, progress))


def check_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """The texts as a list; raises DataError, which calls them `name`, if they are not a list of strings."""
    if isinstance(texts, str):
        raise DataError(f"{name}: one string, not a list; pass [{name[:-1]}]")
    if not isinstance(texts, Iterable):
        raise DataError(f"{name}: {texts!r:.40} is not a list of strings")
    listed = list(texts)
    for position, text in enumerate(listed):
        if not isinstance(text, str):
            raise DataError(f"{name}[{position}]: {text!r:.40} is not a string")
    return listed


def score_blocks(engine: Engine, images: Floats, texts: Floats) -> Floats:
    """The scores of all images with all texts, computed block by block: (images, texts)."""
    scores = np.empty((len(images), len(texts)), np.float32)
    for columns in _spans(len(texts), TEXTS_PER_BLOCK):
        block = from_array(texts[columns])
        for rows in _spans(len(images), IMAGES_PER_BLOCK):
            scores[rows, columns] = engine.score(from_array(images[rows]), block)
    return scores


def check_count(name: str, value: object, least: int) -> None:
    """Raise a DataError if a number is given that is not a whole one of at least `least`."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and (not is_whole or value < least):  # type: ignore[operator]
        raise DataError(f"{name}={value!r}: not a whole number of at least {least}")


def _spans(count: int, most: int) -> Iterator[slice]:
    """As few spans of nearly equal length as possible: a tiny one at the end would be slow, and round differently."""
    number = -(-count // most)
    for part in range(number):
        yield slice(part * count // number, (part + 1) * count // number)
