import io

import numpy as np
import pytest
from PIL import Image

from diptych.index.thumbnails import colour_grid, difference_hash, thumbnail


def gradient(size):
    """A photo with a bright diagonal, and brighter to the right."""
    columns, rows = np.meshgrid(np.linspace(0, 1, size[0]), np.linspace(0, 1, size[1]))
    grey = 100 * columns + 100 * (np.abs(columns - rows) < 0.2)
    return Image.fromarray(np.repeat(grey.astype(np.uint8)[..., None], 3, 2))


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1000, 500), (320, 160)), ((90, 2000), (14, 320)), ((64, 48), (64, 48)), ((5000, 1), (320, 1))],
)
def test_a_thumbnail_is_a_jpeg_of_at_most_320_pixels(size, expected):
    with Image.open(io.BytesIO(thumbnail(Image.new("RGB", size, "red")))) as small:
        assert (small.format, small.size) == ("JPEG", expected)


def test_a_smaller_copy_has_almost_the_same_hash_and_a_mirrored_one_has_not():
    photo = gradient((400, 300))
    original = difference_hash(photo)
    assert 0 <= original < 2**64
    assert (original ^ difference_hash(photo.resize((200, 150)))).bit_count() <= 4
    assert (original ^ difference_hash(photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT))).bit_count() > 20


def test_a_brighter_copy_has_the_same_colours_and_another_colour_shows():
    grey, brighter = (Image.new("RGB", (64, 64), (level, level, level)) for level in (100, 130))
    assert np.abs(colour_grid(thumbnail(grey)) - colour_grid(thumbnail(brighter))).max() < 3
    grey.paste((200, 0, 0), (0, 0, 16, 16))
    grid = colour_grid(thumbnail(grey))
    assert grid.shape == (8, 8, 3)
    assert grid[0, 0, 0] > 50
    assert grid[0, 0, 1] < 0


def test_a_damaged_thumbnail_resembles_nothing():
    assert np.isnan(colour_grid(thumbnail(gradient((40, 40)))[:90])).all()
    assert np.isnan(colour_grid(b"")).all()
