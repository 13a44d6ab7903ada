"""Random scenes: half of them have a sibling in their split that differs in a single colour, count or place.

The split of a scene is a property of the scene, so no description is in two splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Literal

from diptych.data.scenes.random_choice import pick, shuffled
from diptych.data.scenes.scene import COLOURS, COUNTS, PLACES, SHAPES, Scene, Thing

Attribute = Literal["colour", "count", "place"]

_ATTRIBUTES: tuple[Attribute, ...] = ("colour", "count", "place")
_SPLIT_OF_QUARTER = ("train", "train", "val", "test")  # of each quarter of all possible scenes

# Probabilities by repetition: the number of things in a scene, count and size of a thing, the siblings of a scene.
_THING_COUNTS = (1,) * 3 + (2,) * 11 + (3,) * 6
_COUNTS_AND_SIZES = ((1, ""),) * 7 + ((1, "small"),) * 4 + ((2, ""),) * 5 + ((3, ""),) * 4
_SIBLING_COUNTS = (0,) * 11 + (1,) * 6 + (2,) * 3


def siblings(scene: Scene, attribute: Attribute) -> list[Scene]:
    """All scenes that differ from this one in the colour, count or place of one thing, and in nothing else."""
    taken = {thing.place for thing in scene.things}
    free = [place for place in PLACES if place not in taken]
    changed = []
    for thing in scene.things:
        if attribute == "colour":
            variants = [replace(thing, colour=colour) for colour in COLOURS if colour != thing.colour]
        elif attribute == "place":
            variants = [replace(thing, place=place) for place in free]
        elif thing.size:  # only a single thing has a size, so the count of a small one cannot change alone
            variants = []
        else:
            variants = [replace(thing, count=count) for count in COUNTS if count != thing.count]
        others = [other for other in scene.things if other != thing]
        changed += [Scene((variant, *others)) for variant in variants]
    return changed


def generate_scenes(split: str, random: Random) -> Iterator[Scene]:
    """Endlessly many different scenes of a split; siblings follow the scene that they vary."""
    seen: set[Scene] = set()

    def fits(scene: Scene) -> bool:
        return scene not in seen and _is_unambiguous(scene) and _split_of(scene) == split

    while True:
        scene = _draw_scene(random)
        if not fits(scene):
            continue
        seen.add(scene)
        yield scene
        for _ in range(pick(random, _SIBLING_COUNTS)):
            for attribute in shuffled(random, _ATTRIBUTES):
                if candidates := [sibling for sibling in siblings(scene, attribute) if fits(sibling)]:
                    sibling = pick(random, candidates)
                    seen.add(sibling)
                    yield sibling
                    break


def _draw_scene(random: Random) -> Scene:
    things = []
    for place in shuffled(random, PLACES)[: pick(random, _THING_COUNTS)]:
        count, size = pick(random, _COUNTS_AND_SIZES)
        things.append(Thing(count, size, pick(random, COLOURS), pick(random, SHAPES), place))
    return Scene(tuple(things))


def _is_unambiguous(scene: Scene) -> bool:
    """No two things have the same colour and shape: side by side, two and one would look like three."""
    return len({(thing.colour, thing.shape) for thing in scene.things}) == len(scene.things)


def _split_of(scene: Scene) -> str:
    """The only split that may hold this scene, by a hash of its description."""
    digest = hashlib.blake2b(scene.description.encode(), digest_size=1).digest()
    return _SPLIT_OF_QUARTER[digest[0] % len(_SPLIT_OF_QUARTER)]
