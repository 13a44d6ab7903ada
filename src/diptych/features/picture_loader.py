"""Loads the pictures that a feature store lacks: hashes, decodes and crops them, and finds their boxes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.data.corpus import Floats, Integers, Picture
from diptych.data.images import decode, picture_path
from diptych.errors import ImageError
from diptych.features.crops import fixed_crops, load_for_crops, too_small
from diptych.features.hashes import HashCache, pixels_hash, stamp
from diptych.features.region_boxes import BoxSource
from diptych.features.store import FeatureStore
from diptych.files import file_hash


@dataclass(frozen=True)
class LoadedPicture:
    """What a thread found out about one picture.

    Without `crops` and `reason`, the picture is in the store already or was loaded for another image.
    """

    image: int
    key: str | None = None  # of its row in the store; None if the picture could not be hashed
    crops: NDArray[np.uint8] | None = None  # (crops, 3, side, side)
    boxes: Floats | None = None  # (regions, 4), if the regions are boxes
    enlarged: tuple[int, int] | None = None  # width and height, if they are smaller than the crop
    reason: str | None = None  # why the picture cannot be used
    is_permanent: bool = False  # the reason lies in the content of the picture, so that trying again is useless


class PictureLoader:
    """Hashes pictures, and decodes and crops those that a store lacks; safe to call from several threads."""

    def __init__(
        self, pictures: Sequence[Picture], store: FeatureStore, cache: HashCache, side: int, box_source: BoxSource
    ) -> None:
        self._pictures = pictures
        self._store = store
        self._cache = cache
        self._side = side
        self._box_source = box_source
        self._claimed: set[str] = set()
        self._lock = threading.Lock()

    def load(self, images: Integers) -> list[LoadedPicture]:
        """Load some images by number."""
        return [self._load(int(image)) for image in images]

    def _load(self, image: int) -> LoadedPicture:
        picture = self._pictures[image]
        path = picture_path(picture)
        if path is not None:
            return self._load_file(image, picture, path)
        try:
            decoded = picture.load()
        except ImageError as reason:
            return LoadedPicture(image, reason=str(reason))
        key = self._box_source.key(image, pixels_hash(decoded))
        return self._crop(image, key, decoded) if self._claim(key) else LoadedPicture(image, key)

    def _load_file(self, image: int, picture: Picture, path: Path) -> LoadedPicture:
        try:
            before = stamp(path)
            content = file_hash(path)
        except OSError:
            return LoadedPicture(image, reason=_why_unreadable(path))
        self._cache.add(path, before, content)
        key = self._box_source.key(image, content)
        if not self._claim(key):
            return LoadedPicture(image, key)
        try:
            loaded = self._crop(image, key, load_for_crops(picture, self._store.spec.crops, self._side))
        except ImageError as reason:
            loaded = LoadedPicture(image, key, reason=_without_path(path, reason), is_permanent=True)
        with suppress(OSError):
            if stamp(path) == before:
                return loaded
        return LoadedPicture(image, key, reason="changed while it was read; run the command again")

    def _crop(self, image: int, key: str, decoded: Image.Image) -> LoadedPicture:
        is_enlarged = too_small(decoded.size, self._side)
        crops = fixed_crops(decoded, self._store.spec.crops, self._side)
        boxes = self._box_source.boxes(image, decoded)
        return LoadedPicture(image, key, crops, boxes, enlarged=decoded.size if is_enlarged else None)

    def _claim(self, key: str) -> bool:
        """Whether the store lacks this key and no other image has claimed it."""
        with self._lock:
            if key in self._store or key in self._claimed:
                return False
            self._claimed.add(key)
            return True


def with_path(picture: Picture, reason: str) -> str:
    """A reason with the path of its picture, as one line."""
    path = picture_path(picture)
    return reason if path is None else _one_line(f"{path}: {reason}")


def _without_path(path: Path, reason: ImageError) -> str:
    """A reason without the path: a file with the same content may have another name."""
    return str(reason).removeprefix(_one_line(f"{path}: "))


def _why_unreadable(path: Path) -> str:
    try:
        decode(path)
    except ImageError as reason:
        return _without_path(path, reason)
    return "could not be read at first; run the command again"


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
