import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.features.roi_align import pool_cells, roi_align

sizes = st.integers(1, 5)
edges = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2).map(sorted)
boxes = st.tuples(edges, edges).map(lambda ends: (ends[0][0], ends[1][0], ends[0][1], ends[1][1]))


def value_at(plane, down, across):
    """Bilinear, with the centre of cell (i, j) at (i + 1/2, j + 1/2) in cells; the border goes on as it ends."""
    rows, columns = plane.shape
    y = min(max(down - 0.5, 0), rows - 1)
    x = min(max(across - 0.5, 0), columns - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
    above = plane[top, left] * (1 - (x - left)) + plane[top, right] * (x - left)
    below = plane[bottom, left] * (1 - (x - left)) + plane[bottom, right] * (x - left)
    return float(above * (1 - (y - top)) + below * (y - top))


def by_definition(plane, box, bins, samples):
    """Bin by bin and point by point."""
    left, top, right, bottom = box
    if right <= left or bottom <= top:
        return 0.0
    rows, columns = plane.shape
    high, wide = (bottom - top) * rows / bins, (right - left) * columns / bins  # of a bin, in cells
    means = []
    for row in range(bins):
        for column in range(bins):
            points = [
                value_at(
                    plane,
                    top * rows + row * high + (down + 0.5) * high / samples,
                    left * columns + column * wide + (across + 0.5) * wide / samples,
                )
                for down in range(samples)
                for across in range(samples)
            ]
            means.append(sum(points) / len(points))
    return sum(means) / len(means)


@settings(max_examples=25)
@given(sizes, sizes, st.lists(boxes, min_size=1, max_size=2), st.integers(1, 3), st.integers(1, 2))
def test_a_vector_is_the_mean_of_the_samples_of_all_bins(rows, columns, regions, bins, samples):
    maps = torch.randn(2, 2, rows, columns, generator=torch.manual_seed(rows * 7 + columns))
    found = roi_align(maps, torch.tensor([regions, regions[::-1]]), bins, samples)
    assert found.shape == (2, len(regions), 2)
    for image, own in enumerate((regions, regions[::-1])):
        for region, box in enumerate(own):
            expected = [by_definition(plane, box, bins, samples) for plane in maps[image]]
            torch.testing.assert_close(found[image, region], torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_a_point_at_the_centre_of_a_cell_has_its_value():
    maps = torch.randn(1, 3, 4, 5, generator=torch.manual_seed(0))
    cells = torch.tensor([[[x / 5, y / 4, (x + 1) / 5, (y + 1) / 4] for y in range(4) for x in range(5)]])
    found = roi_align(maps, cells, bins=1, samples=1)
    torch.testing.assert_close(found[0], maps[0].flatten(1).T)


def test_the_box_of_a_cell_on_a_linear_map_has_its_value():
    """Away from the border, where the plane goes on; with several samples what lies around a cell is seen, too."""
    down, across = torch.meshgrid(torch.arange(5.0), torch.arange(5.0), indexing="ij")
    inner = torch.tensor([[[x / 5, y / 5, (x + 1) / 5, (y + 1) / 5] for y in range(1, 4) for x in range(1, 4)]])
    plane = 3 * down - 2 * across + 1
    found = roi_align(plane[None, None], inner)
    torch.testing.assert_close(found[0, :, 0], plane[1:4, 1:4].flatten())


@pytest.mark.parametrize(("side", "close"), [(7, 1e-6), (14, 1e-6), (9, 0.05)])
def test_the_whole_photo_is_about_the_mean_of_the_map(side, close):
    maps = torch.rand(2, 3, side, side, generator=torch.manual_seed(1))
    whole = torch.tensor([[[0.0, 0, 1, 1]]]).expand(2, 1, 4)
    torch.testing.assert_close(roi_align(maps, whole)[:, 0], maps.mean((2, 3)), atol=close, rtol=0)


def test_a_box_without_area_has_a_zero_vector_and_no_gradient():
    maps = torch.ones(1, 2, 3, 3, requires_grad=True)
    found = roi_align(maps, torch.tensor([[[0, 0, 1, 1], [0, 0, 0, 0], [0.5, 0.2, 0.5, 0.9]]]))
    assert found[0].tolist() == [pytest.approx([1, 1]), [0, 0], [0, 0]]
    found[0, 1:].sum().backward()
    assert not maps.grad.any()


def test_pool_cells_reads_the_map_row_by_row():
    maps = torch.randn(2, 3, 4, 4, generator=torch.manual_seed(2))
    places = torch.rand(2, 5, 2, generator=torch.manual_seed(3)) / 2
    boxes = torch.cat([places, places + 0.4], dim=2)
    cells = maps.flatten(2).transpose(1, 2).contiguous()  # (images, cells, channels)
    torch.testing.assert_close(pool_cells(cells, boxes), roi_align(maps, boxes))
