from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageColor

from diptych.report.box_overlay import BLACK, BOX_COLOURS, LabelledBox, draw_boxes

AMBER = (255, 176, 0)


def coloured(picture: Image.Image, colour: str) -> tuple[int, int, int, int]:
    """The box around all pixels of a colour: left, top, right, bottom."""
    rows, columns = np.nonzero((np.asarray(picture) == ImageColor.getrgb(colour)).all(2))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def test_boxes_are_drawn_in_place_and_small_photos_are_enlarged():
    drawn = draw_boxes(Image.new("RGB", (320, 160), "white"), [LabelledBox((80, 60, 160, 120), "", BOX_COLOURS[0])])
    assert drawn.size == (640, 320)
    left, _, right, bottom = coloured(drawn, BOX_COLOURS[0])  # above it stands the label
    assert np.abs(np.array([left, right, bottom]) - (160, 320, 240)).max() <= 2
    assert drawn.getpixel((240, 180)) == (255, 255, 255)  # the inside stays as it is
    assert drawn.getpixel((240, 122)) == AMBER
    large = Image.new("RGB", (1300, 900), "white")
    assert draw_boxes(large, []).size == large.size
    assert (np.asarray(large) == 255).all()  # what was given is not drawn on
    draw_boxes(large, [LabelledBox((0, 0, 1300, 900), "all", BOX_COLOURS[1])])
    assert (np.asarray(large) == 255).all()


sides = st.integers(1, 900)
shares = st.lists(st.floats(0, 1), min_size=4, max_size=4)


@settings(max_examples=25)
@given(sides, sides, st.lists(st.tuples(shares, st.text(max_size=60)), max_size=5))
def test_any_box_and_label_can_be_drawn(width, height, wanted):
    outlines = [
        LabelledBox((a * width, b * height, c * width, d * height), label, BOX_COLOURS[row])
        for row, ((a, b, c, d), label) in enumerate(wanted)
    ]
    assert max(draw_boxes(Image.new("RGB", (width, height)), outlines).size) == max(640, width, height)


@pytest.mark.parametrize("corner", ["top left", "top right", "bottom left", "bottom right"])
def test_labels_stay_within_the_picture(corner):
    top, left = (0 if "top" in corner else 630), (0 if "left" in corner else 630)
    photo = Image.new("RGB", (640, 640), "white")
    drawn = draw_boxes(photo, [LabelledBox((left, top, left + 10, top + 10), "a label of some length", BOX_COLOURS[0])])
    box = coloured(drawn, BOX_COLOURS[0])
    assert box[2] - box[0] > 100  # all of it: none was cut off at the edge
    assert 20 < box[3] - box[1] < 60
    with_words = np.asarray(drawn)[box[1] : box[3], box[0] : box[2]]
    assert (with_words.max(2) < 60).sum() > 100  # dark letters on amber


def test_labels_of_equal_boxes_do_not_overlap():
    photo = Image.new("RGB", (640, 480), "white")
    boxes = [LabelledBox((100, 200, 300, 300), "the same words", colour) for colour in BOX_COLOURS[:5]]
    drawn = draw_boxes(photo, boxes)
    label = draw_boxes(photo, boxes[:1])
    size = (np.asarray(label)[:195] == ImageColor.getrgb(BOX_COLOURS[0])).all(2).sum()
    for colour in BOX_COLOURS[:4]:  # the box of the last lies over the others, but no label does
        own = (np.asarray(drawn) == ImageColor.getrgb(colour)).all(2).sum()
        assert own > 0.7 * size


def test_long_labels_are_truncated_and_have_enough_contrast():
    photo = Image.new("RGB", (640, 480), "white")
    box = coloured(
        draw_boxes(photo, [LabelledBox((10, 100, 50, 200), "many words " * 30, BOX_COLOURS[0])]), BOX_COLOURS[0]
    )
    assert box[2] <= 640
    for colour in BOX_COLOURS:
        assert (light(colour) + 0.05) / (light(BLACK) + 0.05) > 4.5


def light(colour: str) -> float:
    """The relative luminance by which contrast is told."""
    parts = [value / 255 for value in ImageColor.getrgb(colour)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
