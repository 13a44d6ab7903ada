"""The built-in corpus: drawn scenes with captions, boxes and identities; seeded, no download, no licence.

It is hard in the way photo collections are: half of the scenes have a sibling in their split that differs in
a single colour, count or place, and a caption is right for its own scene only.

Which split a scene may be in is a property of the scene, so no description is in two splits. Each split is
drawn on its own: its first scenes stay as they are whatever its size, the other splits, `images` or `texts`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Literal

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.scenes import wording
from diptych.data.scenes.drawing import ScenePicture
from diptych.data.scenes.wording import Scene, Thing, pick, shuffled
from diptych.errors import DataError, did_you_mean

__all__ = ["Scene", "ScenePicture", "Thing", "make_scenes", "scenes_corpus", "siblings"]

Attribute = Literal["colour", "count", "place"]

_MOST = 1_000_000  # scenes a split; the smallest split could draw from some 90 million
_LIMITS = {
    "train": (0, _MOST),
    "val": (0, _MOST),
    "test": (0, _MOST),
    "images": (1, 100),
    "texts": (1, len(wording.WORDINGS)),
    "seed": (0, 2**63 - 1),
}
_HOMES = ("train", "train", "val", "test")  # who draws from each quarter of all possible scenes
_VARIED: tuple[Attribute, ...] = ("colour", "count", "place")

# Chances by repetition: the things in a scene, the count and size of a thing, the siblings of a scene.
_THINGS = (1,) * 3 + (2,) * 11 + (3,) * 6
_KINDS = ((1, ""),) * 7 + ((1, "small"),) * 4 + ((2, ""),) * 5 + ((3, ""),) * 4
_SIBLINGS = (0,) * 11 + (1,) * 6 + (2,) * 3


def scenes_corpus(address: str = "") -> Corpus:
    """Draw the corpus that an address like "train=3000,test=500,images=1,texts=5,seed=0" asks for."""
    options: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in address.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in _LIMITS:
            raise DataError(f"scenes: no option {name!r}; {did_you_mean(name, _LIMITS)}")
        if name in options:
            raise DataError(f"scenes: option {name} is given twice; keep one")
        if not re.fullmatch("[0-9]{1,20}", number):
            low, high = _LIMITS[name]
            raise DataError(f"scenes: {name} needs a whole number from {low} to {high}, not {number[:20]!r}")
        options[name] = int(number)
    return make_scenes(**options)


def make_scenes(
    train: int = 4000, val: int = 300, test: int = 500, images: int = 1, texts: int = 5, seed: int = 0
) -> Corpus:
    """Draw a corpus of so many scenes a split; a scene is a group of `images` pictures and `texts` captions.

    The same arguments give the same corpus everywhere. With several images a scene is an identity: its
    pictures differ in all that no caption speaks of.
    """
    sizes = {"train": train, "val": val, "test": test}
    for name, value in {**sizes, "images": images, "texts": texts, "seed": seed}.items():
        low, high = _LIMITS[name]
        if not low <= value <= high:
            raise DataError(f"scenes: {name}={value} is out of range; it goes from {low} to {high}")

    scenes: dict[str, Scene] = {}  # by a key like "test-00012"
    for split, size in sizes.items():
        for i, scene in enumerate(islice(_endless(split, Random(f"{seed}-{split}")), size)):
            scenes[f"{split}-{i:05d}"] = scene
    pictures = {f"{key}-{k}": ScenePicture(scenes[key], f"{seed}-{key}-{k}") for key in scenes for k in range(images)}
    # A group's number does not depend on the other splits either.
    groups = np.concatenate([np.arange(size, dtype=np.int64) + s * _MOST for s, size in enumerate(sizes.values())])
    splits = np.repeat(list(sizes), list(sizes.values()))
    return Corpus(
        name="scenes",
        image_ids=list(pictures),
        image_groups=groups.repeat(images),
        image_splits=splits.repeat(images),
        texts=[text for key in scenes for text in wording.captions(scenes[key], texts, Random(f"{seed}-{key}"))],
        text_groups=groups.repeat(texts),
        text_splits=splits.repeat(texts),
        pictures=list(pictures.values()),
        boxes=[picture.boxes() for picture in pictures.values()],
        phrases=[
            phrases
            for key in scenes  # from a dice of their own: captions do not depend on them
            for phrases in wording.phrases(scenes[key], texts, Random(f"{seed}-{key}-phrases"))
        ],
    )


def siblings(scene: Scene, attribute: Attribute) -> list[Scene]:
    """All scenes in which one thing has another colour, count or place, and nothing else is different."""
    taken = {thing.place for thing in scene.things}
    free = [place for place in wording.PLACES if place not in taken]
    changed = []
    for thing in scene.things:
        if attribute == "colour":
            variants = [replace(thing, colour=colour) for colour in wording.COLOURS if colour != thing.colour]
        elif attribute == "place":
            variants = [replace(thing, place=place) for place in free]
        elif thing.size:  # only a single thing has a size, so the count of a small one cannot change alone
            variants = []
        else:
            variants = [replace(thing, count=count) for count in wording.COUNTS if count != thing.count]
        others = [other for other in scene.things if other != thing]
        changed += [Scene((variant, *others)) for variant in variants]
    return changed


def _endless(split: str, dice: Random) -> Iterator[Scene]:
    """Different scenes of a split without end, siblings right after the scene that they vary."""
    seen: set[Scene] = set()

    def fits(scene: Scene) -> bool:
        return scene not in seen and _clear(scene) and _home(scene) == split

    while True:
        scene = _draw(dice)
        if not fits(scene):
            continue
        seen.add(scene)
        yield scene
        for _ in range(pick(dice, _SIBLINGS)):
            for attribute in shuffled(dice, _VARIED):
                if candidates := [sibling for sibling in siblings(scene, attribute) if fits(sibling)]:
                    sibling = pick(dice, candidates)
                    seen.add(sibling)
                    yield sibling
                    break


def _draw(dice: Random) -> Scene:
    things = []
    for place in shuffled(dice, wording.PLACES)[: pick(dice, _THINGS)]:
        count, size = pick(dice, _KINDS)
        things.append(Thing(count, size, pick(dice, wording.COLOURS), pick(dice, wording.SHAPES), place))
    return Scene(tuple(things))


def _clear(scene: Scene) -> bool:
    """No two things of one colour and shape: side by side, two and one would look like three."""
    return len({(thing.colour, thing.shape) for thing in scene.things}) == len(scene.things)


def _home(scene: Scene) -> str:
    """The one split that may hold this scene: a fixed property of it, scattered evenly."""
    digest = hashlib.blake2b(scene.description.encode(), digest_size=1).digest()
    return _HOMES[digest[0] % len(_HOMES)]
