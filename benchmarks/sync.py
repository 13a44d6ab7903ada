"""Compare syncing an index with an unchanged folder with a bare directory walk that calls `stat` on each file.

Diptych compares every file with its entry, and opens neither files nor the model. The photos are hard links to a few
small images, in 100 folders; the index is built with a fake model.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from PIL import Image

from diptych.index.sync import sync
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from harness import arguments, finish, interleaved

TARGET = 3.0
FOLDERS, IMAGES = 100, 50


class Fake(Model):
    """A model whose embeddings have four dimensions."""

    address, identity, embedding_dim, is_inner_product = "fake", "0" * 64, 4, True
    reads_pictures, decode_size, quality = True, None, "best"

    def __init__(self) -> None:
        super().__init__(engine=cast("Any", self))  # as far as syncing needs one

    def preprocess(self, photo: Image.Image) -> np.ndarray:
        """The photo as 2 x 2 pixels."""
        return np.asarray(photo.resize((2, 2)), np.uint8).transpose(2, 0, 1).copy()

    def encode_preprocessed(self, prepared: Sequence[np.ndarray]) -> Encodings:
        """The mean over the colour channels."""
        return Encodings(np.stack([pixels.reshape(3, 4).mean(0) for pixels in prepared]).astype(np.float32))


class Unopened(Model):
    """The same model, whose engine must not be needed."""

    address, identity = Fake.address, Fake.identity

    @property
    def engine(self) -> NoReturn:
        """Fails."""
        raise AssertionError("the model was opened")


def fill(folder: Path, count: int) -> None:
    """Fill a folder with many names of a few images."""
    first = [folder / f"{number}.png" for number in range(IMAGES)]
    folder.mkdir()
    for number, path in enumerate(first):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path)
    for number in range(IMAGES, count):
        below = folder / f"folder {number % FOLDERS}"
        below.mkdir(exist_ok=True)
        os.link(first[number % IMAGES], below / f"photo {number}.png")


def walk(folder: str) -> int:
    """The bare walk: count the files, reading the size and time of each."""
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                count += walk(entry.path)
            else:
                status = entry.stat(follow_symlinks=False)
                count += status.st_size > 0 and status.st_mtime_ns > 0
    return count


def main() -> None:
    """Build the index, check that syncing encodes nothing, then compare the times."""
    options = arguments(__doc__)
    count, rounds = (20_000, 4) if options.quick else (100_000, 6)
    model = Unopened()
    with tempfile.TemporaryDirectory() as name:
        folder, index = Path(name, "photos"), Path(name, "photos.diptych")
        fill(folder, count)
        made = sync(Fake(), str(folder), index)
        again = sync(model, str(folder), index)
        right = made.encoded == IMAGES and (again.encoded, again.kept) == (0, count) and walk(str(folder)) == count
        works = {"sync": lambda: sync(model, str(folder), index), "walk": lambda: walk(str(folder))}
        times = interleaved(works, rounds)
    ratio = times["sync"].wall / times["walk"].wall
    finish(
        "sync",
        ratio=ratio,
        target=TARGET,
        ok=ratio <= TARGET and right,
        cpu_ratio=round(times["sync"].cpu / times["walk"].cpu, 3),
        nothing_encoded=right,
        seconds={name: round(timing.wall, 3) for name, timing in times.items()},
        files=count,
    )


if __name__ == "__main__":
    main()
