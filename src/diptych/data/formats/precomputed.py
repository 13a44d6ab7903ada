"""Precomputed features in the layout of the original systems: `train_ims.npy` with `train_caps.txt`, and so on.

The parts are train, dev, test and testall. `*_ims.npy` has one row per image, (images, size) or (images, regions,
size). `*_caps.txt` has one caption per line in the images' order, the same number for each image. `*_ids.txt`,
optional, names the images: one line per image or per caption. If there is one row per caption, a row that equals the
one above it is the same image.

`*_boxes.npy`, optional, (images, regions, 4), has the boxes of the regions: left, top, right, bottom, relative to the
photo, or in pixels if `*_sizes.npy` has the width and height of each photo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.address import Address
from diptych.data.corpus import Corpus, Features, Floats, Integers, Problem
from diptych.data.parsing import clean_text
from diptych.errors import DataError

ORDER = 10
DESCRIPTION = "a folder of precomputed *_ims.npy"

_SPLITS = {"train": "train", "dev": "val", "test": "test", "testall": "test"}
_ROUNDING = 0.01  # a box may leave its photo by this share of it, about a pixel


@dataclass
class _Part:
    """One part, such as train; images and texts are numbered within it."""

    split: str
    vectors: NDArray[np.floating]
    boxes: Floats | None  # a row for each of `vectors`
    rows: Integers  # the rows of `vectors` that are images
    ids: list[str]
    texts: list[str]
    images_of_texts: list[int]


def recognises(address: Address) -> bool:
    """A folder with the features of any part."""
    return any(_vectors_file(address.path, part).is_file() for part in _SPLITS)


def read(address: Address) -> Corpus:
    """Read a folder of stored features; the arrays stay on disk until rows of them are read.

    The option of the address says which of test and testall is the test split; it defaults to test if there is one.
    """
    corpus = _read_folder(address.path, address.option)
    return corpus if address.option is None else replace(corpus, address=f"{address.path.absolute()}#{address.option}")


def _read_folder(folder: Path, test: str | None) -> Corpus:
    problems: list[Problem] = []
    names = [name for name in _SPLITS if _vectors_file(folder, name).is_file()]
    if not names or (test is not None and (test not in names or _SPLITS[test] != "test")):
        raise DataError(f"{folder}: no {test or 'train'}_ims.npy in it; it has {', '.join(names) or 'no features'}")
    if {"test", "testall"} <= set(names):
        names.remove("test" if test == "testall" else "testall")
    parts = [_read_part(folder, name, problems) for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.vectors.shape[1:] != parts[0].vectors.shape[1:]:
            shapes = f"{part.vectors.shape[1:]}, not {parts[0].vectors.shape[1:]} as in {names[0]}_ims.npy"
            raise DataError(f"{_vectors_file(folder, name)}: an image has the shape {shapes}")
    if not any(part.texts for part in parts):
        raise DataError(f"{folder}: no usable text in it; first problem: {problems[0]}")
    return _join(folder, parts, problems)


def _join(folder: Path, parts: list[_Part], problems: list[Problem]) -> Corpus:
    starts = np.cumsum([0, *(len(part.vectors) for part in parts)])
    first_group = np.cumsum([0, *(len(part.ids) for part in parts)])
    rows = [start + part.rows for start, part in zip(starts, parts, strict=False)]
    groups = [start + np.array(part.images_of_texts, np.int64) for start, part in zip(first_group, parts, strict=False)]
    return Corpus(
        name=folder.resolve().name,
        image_ids=[identity for part in parts for identity in part.ids],
        image_groups=np.arange(first_group[-1], dtype=np.int64),
        image_splits=np.repeat([part.split for part in parts], [len(part.ids) for part in parts]),
        texts=[text for part in parts for text in part.texts],
        text_groups=np.concatenate(groups),
        text_splits=np.repeat([part.split for part in parts], [len(part.texts) for part in parts]),
        features=Features([part.vectors for part in parts], np.concatenate(rows)),
        region_boxes=_region_boxes(parts, np.concatenate(rows)),
        problems=tuple(problems),
    )


def _region_boxes(parts: list[_Part], rows: Integers) -> Features | None:
    """The boxes of all parts, zeros for a part without boxes."""
    if all(part.boxes is None for part in parts):
        return None
    boxes = []
    for part in parts:
        unknown = np.broadcast_to(np.float32(0), (*part.vectors.shape[:2], 4))  # takes no memory
        boxes.append(unknown if part.boxes is None else part.boxes)
    return Features(boxes, rows)


def _read_part(folder: Path, name: str, problems: list[Problem]) -> _Part:
    vectors, captions_file = _load(_vectors_file(folder, name)), folder / f"{name}_caps.txt"
    captions = _captions(captions_file, _vectors_file(folder, name), len(vectors))
    captions_per_row = len(captions) // len(vectors)
    image_of_row, ids = _images(folder, name, vectors, captions_per_row, problems)
    texts: list[str] = []
    images_of_texts: list[int] = []
    for line, caption in enumerate(captions):
        if (image := image_of_row[line // captions_per_row]) is None:
            continue
        try:
            texts.append(clean_text(caption))
            images_of_texts.append(image)
        except DataError as reason:
            problems.append(Problem(str(captions_file), line + 1, str(reason)))
    prefixed = [f"{name}/{identity}" for identity in ids]
    rows = np.array(list(ids.values()), np.int64)
    boxes = _boxes(folder, name, vectors, problems)
    return _Part(_SPLITS[name], vectors, boxes, rows, prefixed, texts, images_of_texts)


def _captions(file: Path, vectors_file: Path, images: int) -> list[str]:
    captions = _lines(file)
    if len(captions) % images:  # some editors leave blank lines at the end
        while captions and not captions[-1].strip():
            captions.pop()
    if not captions or len(captions) % images:
        counts = f"{images} images, but {file} has {len(captions)} captions"
        raise DataError(f"{vectors_file}: {counts}; each image must have the same number of them")
    return captions


def _images(
    folder: Path, name: str, vectors: NDArray[np.floating], captions_per_row: int, problems: list[Problem]
) -> tuple[list[int | None], dict[str, int]]:
    """The image that each row shows (None if it is left out), and the row of each image's id."""
    repeated = _repeats(vectors) if captions_per_row == 1 else np.zeros(len(vectors), np.bool_)
    if count := int(repeated.sum()):
        message = f"{count} rows repeat the row above them; they are read as one image with several texts"
        problems.append(Problem(str(_vectors_file(folder, name)), int(repeated.argmax()) + 1, message))
    image_of_row: list[int | None] = []
    ids: dict[str, int] = {}
    for row, identity in enumerate(_ids(folder, name, len(vectors), captions_per_row, problems)):
        if repeated[row]:
            image_of_row.append(image_of_row[-1])
        elif identity in ids:
            image_of_row.append(None)
            message = f"id {identity!r} is already at row {ids[identity] + 1}; left out with its captions"
            problems.append(Problem(str(folder / f"{name}_ids.txt"), row + 1, message))
        else:
            image_of_row.append(len(ids))
            ids[identity] = row
    return image_of_row, ids


def _boxes(folder: Path, name: str, vectors: NDArray[np.floating], problems: list[Problem]) -> Floats | None:
    """Where the regions lie, relative to the photo; a file that cannot be used is a problem, and ignored."""
    file, sizes_file = folder / f"{name}_boxes.npy", folder / f"{name}_sizes.npy"
    if not file.is_file():
        return None
    try:
        if vectors.ndim == 2:
            raise DataError("an image has one vector and no regions")
        boxes = _numbers(file, (*vectors.shape[:2], 4))
        if boxes.max(initial=0) > 1 + _ROUNDING:  # pixels
            if not sizes_file.is_file():
                raise DataError(f"boxes in pixels need the width and height of each photo in {sizes_file.name}")
            sizes = _numbers(sizes_file, (len(vectors), 2))
            if sizes.min() <= 0:
                raise DataError(f"a photo without width or height in {sizes_file.name}")
            boxes = boxes / np.tile(sizes, 2)[:, None]  # (images, 1, 4)
        low, high = boxes.min(initial=0), boxes.max(initial=0)
        if low < -_ROUNDING or high > 1 + _ROUNDING or (boxes[..., 2:] < boxes[..., :2]).any():
            raise DataError("boxes that leave their photos, or whose right or bottom lies before left or top")
    except DataError as reason:
        problems.append(Problem(str(file), None, f"{reason}; the boxes are not used"))
        return None
    return boxes.clip(0, 1)


def _numbers(file: Path, shape: tuple[int, ...]) -> Floats:
    """A small array as float32; it must have this shape."""
    stored = _array(file)
    if not np.issubdtype(stored.dtype, np.number) or np.issubdtype(stored.dtype, np.complexfloating):
        raise DataError(f"{file.name} holds {stored.dtype}, not numbers")
    if stored.shape != shape:
        raise DataError(f"{file.name} has the shape {stored.shape}, but the features need {shape}")
    values: Floats = stored.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{file.name} holds numbers that are not finite")
    return values


def _vectors_file(folder: Path, name: str) -> Path:
    return folder / f"{name}_ims.npy"


def _array(file: Path) -> NDArray[Any]:
    """The array in a file, memory-mapped."""
    try:
        stored = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as reason:
        raise DataError(f"not a complete npy array of numbers ({str(reason).splitlines()[0]})") from None
    if isinstance(stored, np.lib.npyio.NpzFile):
        stored.close()
        raise DataError("an npz archive; save the array itself with numpy.save")
    array: NDArray[Any] = stored
    return array


def _load(file: Path) -> NDArray[np.floating]:
    try:
        stored = _array(file)
    except DataError as reason:
        raise DataError(f"{file}: {reason}") from None
    vectors: NDArray[np.floating] = stored
    if not np.issubdtype(vectors.dtype, np.floating):
        raise DataError(f"{file}: not an array of floating-point numbers")
    if vectors.ndim not in (2, 3) or not vectors.size:
        shape = "(images, size) or (images, regions, size)"
        raise DataError(f"{file}: an array of shape {vectors.shape}; it must be {shape}")
    return vectors


def _lines(file: Path) -> list[str]:
    try:
        content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except FileNotFoundError:
        raise DataError(f"{file}: no such file, but its features exist") from None
    except OSError as reason:
        raise DataError(f"{file}: cannot be read ({reason.strerror})") from None
    # Only \n ends a line: splitlines would also split within captions and shift all that follow.
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    return lines if lines[-1] else lines[:-1]


def _ids(folder: Path, name: str, images: int, captions_per_row: int, problems: list[Problem]) -> list[str]:
    """The images' names: from the file of ids if it fits, otherwise their numbers."""
    file = folder / f"{name}_ids.txt"
    numbers = [str(number) for number in range(images)]
    if not file.is_file():
        return numbers
    ids = [line.strip().encode(errors="backslashreplace").decode() for line in _lines(file)]
    if len(ids) == images * captions_per_row:
        ids = ids[::captions_per_row]
    if len(ids) != images:
        message = f"{len(ids)} ids for {images} images and {images * captions_per_row} captions; the ids are not used"
        problems.append(Problem(str(file), None, message))
        return numbers
    return ids


def _repeats(vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which rows equal the row above; rows are read only if their first eight numbers are equal."""
    probe = vectors[:, :8] if vectors.ndim == 2 else vectors[:, 0, :8]  # (images, 8)
    repeated = np.zeros(len(vectors), np.bool_)
    repeated[1:] = (probe[1:] == probe[:-1]).all(axis=1)
    for row in np.flatnonzero(repeated):
        repeated[row] = np.array_equal(vectors[row], vectors[row - 1])
    return repeated
