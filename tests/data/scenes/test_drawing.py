from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.data.scenes.drawing import INKS, ScenePicture
from diptych.data.scenes.scene import COLOURS, PLACES, SHAPES, Scene, Thing

KINDS = [(1, ""), (1, "small"), (2, ""), (3, "")]


@st.composite
def pictures(draw):
    """A full grid, so that a thing that leaves its place would run into another one."""
    things = []
    for place in PLACES:
        count, size = draw(st.sampled_from(KINDS))
        things.append(Thing(count, size, draw(st.sampled_from(COLOURS)), draw(st.sampled_from(SHAPES)), place))
    return ScenePicture(Scene(tuple(things)), str(draw(st.integers(0, 10**6))), draw(st.sampled_from([96, 128])))


def pixels(picture):
    return np.asarray(picture.load(), np.int64)


def in_pixels(box, canvas):
    sides = [side * canvas for side in (box.left, box.top, box.right, box.bottom)]
    assert sides == pytest.approx([round(side) for side in sides])
    if canvas == 128:
        assert sides == [round(side) for side in sides]
    return [round(side) for side in sides]


def patches(mask):
    """How many patches of True there are that do not even touch at a corner."""
    left, found = set(zip(*np.nonzero(mask), strict=True)), 0
    while left:
        found += 1
        edge = [left.pop()]
        while edge:
            y, x = edge.pop()
            beside = left & {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
            left -= beside
            edge += beside
    return found


@settings(max_examples=40, deadline=None)
@given(pictures())
def test_boxes_hold_the_ink_of_their_thing_and_nothing_else(picture):
    image = pixels(picture)
    blank = (image == image[0, 0]).all(-1)  # a cell's corner stays empty
    outside = np.ones_like(blank)
    boxes = picture.boxes()
    assert [box.chain for box in boxes] == [str(i) for i in range(9)]
    for thing, box in zip(picture.scene.things, boxes, strict=True):
        left, top, right, bottom = in_pixels(box, picture.canvas)
        here = (slice(top, bottom), slice(left, right))
        assert outside[here].all(), "boxes overlap"
        outside[here] = False
        ink = ~blank[here]
        rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
        assert rows[0] <= 1
        assert columns[0] <= 1
        assert rows[-1] >= ink.shape[0] - 2
        assert columns[-1] >= ink.shape[1] - 2
        # every pixel is between the background and the colour of the thing, and many are that colour
        tint, colour = image[0, 0], np.array(INKS[thing.colour])
        share = ((image[here] - tint) @ (colour - tint)) / ((colour - tint) @ (colour - tint))
        assert np.abs(image[here] - (tint + share[..., None] * (colour - tint))).max() <= 3
        assert (image[here] == colour).all(-1).sum() >= 10
    assert blank[outside].all()


@settings(max_examples=40, deadline=None)
@given(pictures())
def test_things_stay_in_their_places(picture):
    third = picture.canvas / 3
    for thing, box in zip(picture.scene.things, picture.boxes(), strict=True):
        row, column = thing.cell
        left, top, right, bottom = in_pixels(box, picture.canvas)
        assert row * third - 1 < top < bottom < (row + 1) * third + 1
        assert column * third - 1 < left < right < (column + 1) * third + 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_copies_can_be_counted_at_64_pixels(shape, count):
    for seed in range(20):
        picture = ScenePicture(Scene((Thing(count, "", "blue", shape, "middle"),)), str(seed))
        small = np.asarray(picture.load().resize((64, 64), Image.Resampling.BOX), np.int64)
        tint, ink = small[0, 0], np.array(INKS["blue"])
        covered = ((small - tint) @ (ink - tint)) / ((ink - tint) @ (ink - tint)) > 0.5
        assert patches(covered) == count


@pytest.mark.parametrize("shape", SHAPES)
def test_small_things_are_clearly_smaller(shape):
    def area(size, seed):
        (box,) = ScenePicture(Scene((Thing(1, size, "red", shape, "left"),)), seed).boxes()
        return (box.right - box.left) * (box.bottom - box.top)

    seeds = [str(seed) for seed in range(50)]
    assert max(area("small", seed) for seed in seeds) < 0.5 * min(area("", seed) for seed in seeds)


def test_a_change_of_any_word_changes_the_picture():
    thing = Thing(1, "", "red", "circle", "top")
    changes = [{"count": 2}, {"size": "small"}, {"colour": "pink"}, {"place": "middle"}]
    variants = [replace(thing, **change) for change in changes]
    variants += [replace(thing, shape=shape) for shape in SHAPES]
    drawn = [pixels(ScenePicture(Scene((variant,)), "0")) for variant in variants]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert (np.abs(one - other).max(-1) > 60).sum() > 30


def test_inks_are_far_apart_and_far_from_every_background():
    colours = np.array([INKS[colour] for colour in COLOURS])
    apart = np.abs(colours[:, None] - colours[None]).max(-1) + 1000 * np.eye(len(colours))
    assert apart.min() > 90
    for seed in range(100):
        tint = pixels(ScenePicture(Scene((Thing(1, "", "red", "ring", "top"),)), str(seed)))[0, 0]
        assert tint.min() >= 226
        assert np.abs(colours - tint).max(-1).min() > 90


def test_a_picture_is_the_same_each_time_and_its_seed_matters():
    scene = Scene((Thing(2, "", "green", "star", "left"), Thing(1, "", "black", "ring", "right")))
    first = ScenePicture(scene, "a").load()
    assert first.mode == "RGB"
    assert first.size == (128, 128)
    assert first.tobytes() == ScenePicture(scene, "a").load().tobytes()
    assert first.tobytes() != ScenePicture(scene, "b").load().tobytes()
    assert ScenePicture(scene, "a").boxes() != ScenePicture(scene, "b").boxes()
    assert len({ScenePicture(scene, str(Random(seed).random())).load().tobytes() for seed in range(20)}) == 20
    assert ScenePicture(scene, "a", canvas=64).load().size == (64, 64)
