"""What the files of a format need to become upright RGB is tested with decoding (test_images.py)."""

import pytest
from PIL import Image

from diptych.data.upright import orientation, turn


@pytest.mark.parametrize("number", [0, 1, 9, "6", None])
def test_an_unknown_orientation_is_upright(number):
    image = Image.new("RGB", (3, 2))
    image.getexif()[0x0112] = number
    assert orientation(image) == 1
    assert turn(image, orientation(image)) is image


@pytest.mark.parametrize("number", range(2, 9))
def test_a_turned_image_forgets_its_orientation(number):
    image = Image.new("RGB", (3, 2))
    image.info["exif"] = b"something"
    turned = turn(image, number)
    assert "exif" not in turned.info
    assert turned.size == ((2, 3) if number >= 5 else (3, 2))
