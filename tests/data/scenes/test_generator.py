from itertools import islice
from random import Random

import pytest

from diptych.data.scenes.generator import generate_scenes, siblings
from diptych.data.scenes.scene import Scene, Thing


def without(scene, attribute):
    """The scene with an attribute of a thing blanked, for each thing; siblings share one of these."""
    blank = ["count", "size", "colour", "shape", "place"].index(attribute)
    things = frozenset((thing.count, thing.size, thing.colour, thing.shape, thing.place) for thing in scene.things)
    for thing in things:
        yield things - {thing}, (*thing[:blank], None, *thing[blank + 1 :])


@pytest.mark.parametrize(("attribute", "expected"), [("colour", 6 + 6), ("count", 2), ("place", 7 + 7)])
def test_siblings_differ_in_one_attribute_of_one_thing(attribute, expected):
    scene = Scene((Thing(1, "small", "red", "star", "top"), Thing(2, "", "blue", "ring", "left")))
    found = siblings(scene, attribute)
    assert len(set(found)) == len(found) == expected
    for sibling in found:
        assert sibling != scene
        assert len(set(without(sibling, attribute)) & set(without(scene, attribute))) == 1


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_no_scene_is_repeated_or_in_two_splits(split):
    scenes = set(islice(generate_scenes(split, Random("seed")), 300))
    assert len(scenes) == 300
    for other in {"train", "val", "test"} - {split}:
        assert not scenes.intersection(islice(generate_scenes(other, Random("seed")), 300))
