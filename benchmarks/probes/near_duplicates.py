"""Measure which photos count as near-duplicates, and what storage types cost, on your own photos.

    python benchmarks/probes/near_duplicates.py RUN DATA [--split val] [--photos 100] [--features features]

Modified copies of a photo (compressed, scaled, cropped, brightened) should count as near-duplicates of it; two
photos of the split should not, nor should two drawn scenes.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from rich.console import Console
from rich.table import Table

from diptych.data.formats.scenes import make_scenes
from diptych.data.open import open_corpus
from diptych.features.image_input import pictures_of
from diptych.index.duplicates import first_same_image
from diptych.index.storage_cost import measure
from diptych.index.thumbnails import colour_grid, difference_hash, thumbnail
from diptych.machine import keep_freed_memory
from diptych.model import Model

SCENES = 150
AT_ONCE = 8

Vectors = NDArray[np.float32]
Looks = NDArray[np.uint64]


def compressed(photo: Image.Image) -> Image.Image:
    """The photo as JPEG of quality 40."""
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=40)
    return Image.open(file).convert("RGB")


def cropped(photo: Image.Image, share: float) -> Image.Image:
    """The photo without this share of its width and height, half of it at each edge."""
    width, height = photo.size
    return photo.crop(
        (
            int(width * share / 2),
            int(height * share / 2),
            int(width * (1 - share / 2)),
            int(height * (1 - share / 2)),
        )
    )


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG of quality 40": compressed,
    "scaled to two thirds": lambda photo: photo.resize((photo.width * 2 // 3, photo.height * 2 // 3)),
    "cropped by 4%": lambda photo: cropped(photo, 0.04),
    "cropped by 10%": lambda photo: cropped(photo, 0.10),
    "brightened by 15%": lambda photo: ImageEnhance.Brightness(photo).enhance(1.15),
}


Seen = tuple[Vectors, Looks, Vectors]


def seen(model: Model, photos: Sequence[Image.Image]) -> Seen:
    """What an index stores to find near-duplicates: vectors, hashes and colours."""
    parts = [photos[begin : begin + AT_ONCE] for begin in range(0, len(photos), AT_ONCE)]
    vectors = [model.encode_images(part) for part in parts]
    return np.concatenate(vectors), *looks_of(photos)


def looks_of(photos: Sequence[Image.Image]) -> tuple[Looks, Vectors]:
    """The hashes and colours of photos."""
    shown = np.stack([colour_grid(thumbnail(photo)) for photo in photos])
    return np.array([difference_hash(photo) for photo in photos], np.uint64), shown


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two images, each given as vector, hash and colours, count as near-duplicates."""
    vectors, looks, shown = (np.stack(both) for both in zip(one, other, strict=True))
    return bool(first_same_image(np.arange(2), looks, vectors, lambda row: shown[row]).tolist() == [0, 0])


def recognised(ones: Seen, others: Seen) -> int:
    """The number of photos that count as near-duplicates of the photo in the same row of `others`."""
    return sum(same(one, other) for one, other in zip(zip(*ones), zip(*others), strict=True))  # noqa: B905


def taken_for_same(vectors: Vectors, looks: Looks, shown: Vectors) -> tuple[int, int]:
    """The number of pairs of different images that count as near-duplicates, and the number of all pairs."""
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    close = np.triu(directions @ directions.T >= 0.9, 1)  # a loose filter, so that only few pairs need the full check
    rows = list(zip(vectors, looks, shown, strict=True))
    return sum(same(rows[i], rows[j]) for i, j in np.argwhere(close)), len(rows) * (len(rows) - 1) // 2


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--photos", type=int, default=100)
    parser.add_argument("--features", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    model = Model.load(options.run, "cpu", stores=options.features)
    corpus = open_corpus(options.data).split(options.split)
    vectors = model.torch_engine.encode_corpus_images(corpus)[0].numpy()
    photos = [picture.load() for picture in pictures_of(corpus)]
    rows = np.random.default_rng(0).choice(len(photos), min(options.photos, len(photos)), replace=False)
    some = [photos[row] for row in rows]
    originals = vectors[rows], *looks_of(some)

    table = Table("pairs", "count as the same", "of")
    for name, change in COPIES.items():
        found = recognised(originals, seen(model, [change(photo) for photo in some]))
        table.add_row(f"a photo and itself, {name}", str(found), str(len(some)))
    wrong, pairs = taken_for_same(vectors, *looks_of(photos))
    table.add_row(f"two photos of {options.split}", str(wrong), f"{pairs:,}")
    scenes = [picture.load() for picture in pictures_of(make_scenes(train=2, val=2, test=SCENES).split("test"))]
    wrong, pairs = taken_for_same(*seen(model, scenes))
    table.add_row("two drawn scenes", str(wrong), f"{pairs:,}")
    console = Console()
    console.print(table)
    console.print("storage", measure(vectors))


if __name__ == "__main__":
    main()
