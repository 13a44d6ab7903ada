import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.boxes import box_iou

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
