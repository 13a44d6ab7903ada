from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.boxes import box_iou, upper_iou

SIDE = 8
edges = st.lists(st.integers(0, SIDE), min_size=2, max_size=2, unique=True).map(sorted)
nothing = st.just((0, 0, 0, 0))
boxes = st.lists(
    st.tuples(edges, edges).map(lambda ends: (ends[0][0], ends[1][0], ends[0][1], ends[1][1])) | nothing, max_size=5
)


def cells(box):
    """The unit squares of a box."""
    left, top, right, bottom = box
    return {(across, down) for across in range(left, right) for down in range(top, bottom)}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(boxes, boxes)
def test_iou_equals_counting_unit_squares(kind, some, others):
    found = box_iou(*(np.array(each, kind).reshape(-1, 4) / kind(SIDE) for each in (some, others)))
    assert found.dtype == kind
    assert found.shape == (len(some), len(others))
    for row, one in zip(found, some, strict=True):
        for share, other in zip(row, others, strict=True):
            both = cells(one) | cells(other)
            assert share == pytest.approx(len(cells(one) & cells(other)) / len(both) if both else 0, rel=1e-6)


def test_a_batch_of_images_equals_one_image_at_a_time():
    random = np.random.default_rng(0)
    corners = np.sort(random.random((2, 6, 5, 2, 2)), axis=3)  # (sides, photos, boxes, corners, 2)
    some, others = corners.reshape(2, 6, 5, 4)
    together = box_iou(some, others[:, :3])
    assert together.shape == (6, 5, 3)
    for photo in range(6):
        np.testing.assert_array_equal(together[photo], box_iou(some[photo], others[photo, :3]))


@given(boxes.filter(len))
def test_a_box_has_an_iou_of_exactly_one_with_itself(some):
    values = np.array(some, np.float32) / np.float32(7)
    shares = box_iou(values, values).diagonal()
    assert shares.tolist() == [float(bool(cells(box))) for box in some]


THRESHOLDS = {0.7: Fraction(7, 10), 0.5: Fraction(1, 2), 0.3: Fraction(3, 10)}
PHOTOS = [(500, 375), (333, 500), (640, 480)]


def exact_iou(one, other):
    """The intersection over union of boxes in whole pixels."""
    width, height = (min(one[end + 2], other[end + 2]) - max(one[end], other[end]) for end in (0, 1))
    both = max(0, width) * max(0, height)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return Fraction(both, areas - both)


@st.composite
def near_a_threshold(draw):
    """Two boxes of a photo in pixels, one of which is about that share of the other, often exactly."""
    photo = draw(st.sampled_from(PHOTOS))
    width, height = (draw(st.integers(1, 25)) * draw(st.sampled_from([1, 2, 10])) for _ in range(2))
    left, top = (draw(st.integers(0, end - size)) for end, size in zip(photo, (width, height), strict=True))
    part = round(float(draw(st.sampled_from(list(THRESHOLDS)))) * width) + draw(st.sampled_from([-1, 0, 0, 0, 1]))
    one, other = (left, top, left + width, top + height), (left, top, left + max(1, part), top + height)
    return photo, one, other


@settings(max_examples=300)
@given(near_a_threshold())
def test_the_upper_iou_is_compared_with_thresholds_as_whole_pixels_are(case):
    photo, one, other = case
    some, others = ((np.array([box]) / (photo * 2)).astype(np.float32) for box in (one, other))
    for threshold, exact in THRESHOLDS.items():
        assert (upper_iou(some, others)[0, 0] >= threshold) == (exact_iou(one, other) >= exact)


SHIFTED = {
    0.7: (17, 3),
    0.5: (3, 1),
    0.3: (13, 7),
}  # a width, and how far to shift a box to share this much with itself


@pytest.mark.parametrize("side", [333, 500, 1001])
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_exactly_the_threshold_is_enough_wherever_the_boxes_are(threshold, side):
    width, shift = SHIFTED[threshold]
    places = np.arange(side - width - shift)
    one, other = (
        (np.stack([start, places, start + width, places + 1], 1) / side).astype(np.float32)[:, None]
        for start in (places, places + shift)
    )
    assert exact_iou((0, 0, width, 1), (shift, 0, shift + width, 1)) == THRESHOLDS[threshold]
    rounded = box_iou(one.astype(np.float64), other.astype(np.float64))
    assert (rounded < threshold).mean() > 0.1, "no box is rounded down: this test would prove nothing"
    assert (upper_iou(one, other) >= threshold).all()


def test_the_upper_iou_is_hardly_more_than_the_iou():
    some, others = np.array([[0.1, 0.1, 0.5, 0.5]], np.float32), np.array([[0.1, 0.1, 0.5, 0.4]], np.float32)
    assert 0 < upper_iou(some, others)[0, 0] - 0.75 < 5e-6


def test_boxes_without_area_have_hardly_any_upper_iou():
    nothing, box = np.zeros((1, 4), np.float32), np.array([[0.1, 0.1, 0.5, 0.5]], np.float32)
    assert upper_iou(nothing, nothing)[0, 0] < 0.01
    assert upper_iou(nothing, box)[0, 0] < 0.01
