"""The data check: the contents of a corpus, what its splits have in common, and all its problems."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from diptych.data.corpus import SPLITS, Corpus, Features, Integers, Picture, Problem
from diptych.data.images import PictureFile
from diptych.errors import ImageError
from diptych.progress import ProgressCallback

_WORKERS = min(8, os.cpu_count() or 1)
_BLOCK = 64  # images that a thread checks before it reports
_EXAMPLES = 5  # of what several splits have in common

_ImageCheck = tuple[bytes | None, Problem | None]  # the digest of an image's content, and its problem, if any


# Names in the output of `diptych data check --json` that differ from the fields here.
_JSON_KEYS = {"texts_per_image": "texts_an_image", "words_per_text": "words_a_text", "grounding": "named"}


@dataclass(frozen=True)
class Size:
    """The number of images, texts and groups."""

    images: int
    texts: int
    groups: int


@dataclass(frozen=True)
class Spread:
    """The distribution of a number over all images or texts."""

    minimum: int
    median: float
    mean: float
    maximum: int


@dataclass(frozen=True)
class Shared:
    """What occurs in more than one split: how many, and the first few."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Grounding:
    """How many phrases and boxes a corpus has, and how many lack their counterpart."""

    phrases: int
    phrases_without_a_box: int
    boxes: int
    boxes_without_a_phrase: int
    images_without_a_box: int


@dataclass(frozen=True)
class CorpusReport:
    """The result of a check."""

    name: str
    decoded: bool
    total: Size
    splits: dict[str, Size]
    texts_per_image: Spread
    words_per_text: Spread
    grounding: Grounding | None  # of a corpus with phrases or boxes
    shared_texts: Shared
    shared_images: Shared
    shared_groups: Shared
    images_without_texts: tuple[str, ...]
    texts_without_images: tuple[str, ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {_JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}


def check(
    corpus: Corpus, decode: bool = True, workers: int = _WORKERS, progress: ProgressCallback | None = None
) -> CorpusReport:
    """Check a whole corpus; with `decode`, every picture is decoded, otherwise its file is only read."""
    digests, image_problems = _check_images(corpus, decode, workers, progress)
    image_splits, text_splits = corpus.image_splits.tolist(), corpus.text_splits.tolist()
    texts_per_image = _counts(corpus.image_groups, corpus.text_groups)
    images_per_text = _counts(corpus.text_groups, corpus.image_groups)
    ids, texts = corpus.image_ids, corpus.texts
    groups = [*corpus.image_groups.tolist(), *corpus.text_groups.tolist()]
    return CorpusReport(
        name=corpus.name,
        decoded=decode,
        total=_size(corpus),
        splits={name: _size(corpus, name) for name in SPLITS if name in {*image_splits, *text_splits}},
        texts_per_image=_spread(texts_per_image),
        words_per_text=_spread(np.array([len(text.split()) for text in texts])),
        grounding=_grounding(corpus),
        shared_texts=_shared(texts, text_splits, texts),
        shared_images=_shared(digests, image_splits, ids),
        shared_groups=_shared(groups, image_splits + text_splits, [*ids, *texts]),
        images_without_texts=tuple(name for name, count in zip(ids, texts_per_image, strict=True) if not count),
        texts_without_images=tuple(text for text, count in zip(texts, images_per_text, strict=True) if not count),
        problems=(*corpus.problems, *image_problems),
    )


def _check_images(
    corpus: Corpus, decode: bool, workers: int, progress: ProgressCallback | None
) -> tuple[list[bytes | None], list[Problem]]:
    """The digest of each image's content (of its picture, if it also has features), and all problems."""
    images = len(corpus.image_ids)
    kinds: list[Callable[[range], list[_ImageCheck]]] = []
    if corpus.pictures is not None:
        kinds.append(partial(_check_pictures, corpus.image_ids, corpus.pictures, decode))
    if corpus.features is not None:
        kinds.append(partial(_check_features, corpus.image_ids, corpus.features))
    blocks = [range(start, min(start + _BLOCK, images)) for start in range(0, images, _BLOCK)]
    checks: list[_ImageCheck] = []
    with ThreadPoolExecutor(max(1, workers)) as pool:  # after Ctrl-C, map drops the blocks that have not begun
        for kind in kinds:
            for block in pool.map(kind, blocks):
                checks += block
                if progress is not None:
                    progress(len(checks), images * len(kinds))
    digests: list[bytes | None] = [digest for digest, _ in checks[:images]] if kinds else [None] * images
    return digests, [problem for _, problem in checks if problem is not None]


def _check_pictures(ids: Sequence[str], pictures: Sequence[Picture], decode: bool, block: range) -> list[_ImageCheck]:
    return [_check_picture(ids[image], pictures[image], decode) for image in block]


def _check_picture(name: str, picture: Picture, decode: bool) -> _ImageCheck:
    if not isinstance(picture, PictureFile):
        try:
            return _digest(picture.load().tobytes()), None
        except ImageError as reason:
            return None, Problem(name, None, str(reason).removeprefix(f"{name}: "))
    file = str(picture.path)
    try:
        if decode:
            picture.load()
        return _digest(picture.path.read_bytes()), None
    except ImageError as reason:
        return None, Problem(file, None, str(reason).removeprefix(f"{file}: "))
    except OSError as reason:
        return None, Problem(file, None, f"cannot be read ({reason.strerror})")


def _check_features(ids: Sequence[str], features: Features, block: range) -> list[_ImageCheck]:
    checks: list[_ImageCheck] = []
    for image, vector in zip(block, features[np.array(block)], strict=True):
        is_finite = np.isfinite(vector).all()
        problem = None if is_finite else Problem(ids[image], None, "features that are infinite or not numbers")
        checks.append((_digest(vector.tobytes()), problem))
    return checks


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _size(corpus: Corpus, split: str | None = None) -> Size:
    images = np.full(len(corpus.image_ids), True) if split is None else corpus.image_splits == split
    texts = np.full(len(corpus.texts), True) if split is None else corpus.text_splits == split
    groups = np.union1d(corpus.image_groups[images], corpus.text_groups[texts])
    return Size(int(images.sum()), int(texts.sum()), len(groups))


def _grounding(corpus: Corpus) -> Grounding | None:
    if corpus.boxes is None and corpus.phrases is None:
        return None
    boxes = corpus.boxes or [()] * len(corpus.image_ids)
    phrases = corpus.phrases or [()] * len(corpus.texts)
    image_groups, text_groups = corpus.image_groups.tolist(), corpus.text_groups.tolist()
    boxed = [(group, box.chain) for group, some in zip(image_groups, boxes, strict=True) for box in some]
    named = [(group, phrase.chain) for group, some in zip(text_groups, phrases, strict=True) for phrase in some]
    with_box, with_phrase = set(boxed), set(named)
    return Grounding(
        phrases=len(named),
        phrases_without_a_box=sum(entity not in with_box for entity in named),
        boxes=len(boxed),
        boxes_without_a_phrase=sum(entity not in with_phrase for entity in boxed),
        images_without_a_box=sum(not some for some in boxes),
    )


def _counts(groups: Integers, others: Integers) -> Integers:
    """For each of `groups`, how many of `others` are the same group."""
    known, counts = np.unique(others, return_counts=True)
    table = dict(zip(known.tolist(), counts.tolist(), strict=True))
    return np.array([table.get(group, 0) for group in groups.tolist()], np.int64)


def _spread(numbers: Integers) -> Spread:
    if not len(numbers):
        return Spread(0, 0.0, 0.0, 0)
    return Spread(int(numbers.min()), float(np.median(numbers)), float(numbers.mean()), int(numbers.max()))


def _shared(keys: Sequence[Hashable], splits: Sequence[str], names: Sequence[str]) -> Shared:
    """The keys that occur in several splits, each with its first name in each of them."""
    first: dict[Hashable, dict[str, int]] = {}
    for i, (key, split) in enumerate(zip(keys, splits, strict=True)):
        if key is not None:
            first.setdefault(key, {}).setdefault(split, i)
    shared = [rows for rows in first.values() if len(rows) > 1]
    return Shared(len(shared), tuple(_example(rows, names) for rows in shared[:_EXAMPLES]))


def _example(rows: dict[str, int], names: Sequence[str]) -> str:
    name_in_split = {split: names[rows[split]] for split in SPLITS if split in rows}
    if len(set(name_in_split.values())) == 1:
        return f"{names[min(rows.values())]} ({', '.join(name_in_split)})"
    return ", ".join(f"{name} ({split})" for split, name in name_in_split.items())
