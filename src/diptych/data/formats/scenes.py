"""The built-in corpus: drawn scenes with captions, phrases and boxes; seeded, no download, no licence.

It is hard in the way photo collections are: half of the scenes have a sibling in their split that differs in a single
colour, count or place, and a caption is true of its own scene only. With several images per scene, a scene is an
identity: its pictures differ in all that no caption states.

No description is in two splits. Each split is drawn on its own: its first scenes stay the same whatever its size, the
other splits, `images` or `texts`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from random import Random

import numpy as np

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.scenes.captions import PATTERNS, captions, phrases
from diptych.data.scenes.drawing import ScenePicture
from diptych.data.scenes.generator import generate_scenes
from diptych.data.scenes.scene import Scene
from diptych.errors import DataError, did_you_mean

ORDER = 0
DESCRIPTION = "scenes for the built-in corpus"

_MOST_SCENES = 1_000_000  # per split; even the smallest split could draw from some 90 million
_LIMITS = {
    "train": (0, _MOST_SCENES),
    "val": (0, _MOST_SCENES),
    "test": (0, _MOST_SCENES),
    "images": (1, 100),
    "texts": (1, len(PATTERNS)),
    "seed": (0, 2**63 - 1),
}


def recognises(address: Address) -> bool:
    """The name scenes, optionally with settings."""
    return address.text.partition(":")[0] == "scenes"


def read(address: Address) -> Corpus:
    """Draw the corpus of an address such as `scenes:train=3000,test=500,images=1,texts=5,seed=0`."""
    settings: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in address.text.partition(":")[2].split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in _LIMITS:
            raise DataError(f"scenes: no option {name!r}; {did_you_mean(name, _LIMITS)}")
        if name in settings:
            raise DataError(f"scenes: option {name} is given twice; keep one")
        if not re.fullmatch("[0-9]{1,20}", number):
            low, high = _LIMITS[name]
            raise DataError(f"scenes: {name} needs a whole number from {low} to {high}, not {number[:20]!r}")
        settings[name] = int(number)
    return replace(make_scenes(**settings), address=address.text)


def make_scenes(
    train: int = 4000, val: int = 300, test: int = 500, images: int = 1, texts: int = 5, seed: int = 0
) -> Corpus:
    """Draw a corpus with this many scenes per split; a scene is a group of `images` pictures and `texts` captions.

    The same arguments give the same corpus on every machine.
    """
    sizes = {"train": train, "val": val, "test": test}
    for name, value in {**sizes, "images": images, "texts": texts, "seed": seed}.items():
        low, high = _LIMITS[name]
        if not low <= value <= high:
            raise DataError(f"scenes: {name}={value} is out of range; it goes from {low} to {high}")

    scenes: dict[str, Scene] = {}  # by a key like "test-00012"
    for split, size in sizes.items():
        for i, scene in enumerate(islice(generate_scenes(split, Random(f"{seed}-{split}")), size)):
            scenes[f"{split}-{i:05d}"] = scene
    pictures = {f"{key}-{k}": ScenePicture(scenes[key], f"{seed}-{key}-{k}") for key in scenes for k in range(images)}
    # A group's number does not depend on the other splits either.
    starts = [split * _MOST_SCENES for split in range(len(sizes))]
    groups = np.concatenate(
        [np.arange(size, dtype=np.int64) + start for start, size in zip(starts, sizes.values(), strict=True)]
    )
    splits = np.repeat(list(sizes), list(sizes.values()))
    return Corpus(
        name="scenes",
        image_ids=list(pictures),
        image_groups=groups.repeat(images),
        image_splits=splits.repeat(images),
        texts=[text for key in scenes for text in captions(scenes[key], texts, Random(f"{seed}-{key}"))],
        text_groups=groups.repeat(texts),
        text_splits=splits.repeat(texts),
        pictures=list(pictures.values()),
        boxes=[picture.boxes() for picture in pictures.values()],
        phrases=[
            text_phrases
            for key in scenes  # with a seed of their own: captions do not depend on them
            for text_phrases in phrases(scenes[key], texts, Random(f"{seed}-{key}-phrases"))
        ],
    )
