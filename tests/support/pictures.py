"""Pictures, and boxes that stand for the proposals of OpenCV."""

import numpy as np
from PIL import Image

from diptych.data.images import PictureFile
from diptych.errors import ImageError


class BrokenPicture:
    """A picture that cannot be decoded."""

    def load(self):
        raise ImageError("broken.jpg: truncated")


def save_photo(path, seed, size=(40, 36)):
    """Save a photo of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path, "png")
    return PictureFile(path)


def propose_from_colour(regions):
    """Stands for `proposals.proposer`: the whole photo, a box that depends on its mean colour, and no third region."""

    def propose(photo):
        red, green, blue = (float(value) / 256 for value in photo.resize((1, 1)).getpixel((0, 0)))
        boxes = np.zeros((regions.count, 4), np.float32)
        boxes[:2] = [[0, 0, 1, 1], [red / 2, green / 2, 0.5 + blue / 2, 1]]
        return boxes

    return propose
