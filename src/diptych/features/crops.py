"""Crops: the squares of a photo that a backbone sees.

A photo is first resized, to a larger square (`square`, the rule of the VSE++ paper, section 3: 256 x 256 for crops of
224) or by its short side (`short`, the rule of its code). Other sides keep the ratio 256 : 224.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from diptych.data.corpus import Picture
from diptych.data.images import PictureFile, decode
from diptych.features.choices import CropName, Resize
from diptych.settings import Settings

Pixels = NDArray[np.uint8]

# Networks halve their maps five times: other sides would be cut off at an edge.
Side = Annotated[int, Field(ge=32, le=1024, multiple_of=32, strict=True)]

_LONGEST = 32  # a strip thinner than 1 : 32 is squashed to that: else a photo of one pixel by 100,000 fills the memory
_TRIES = 10
_AREAS = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)


class Crops(Settings):
    """What of a photo is seen: its centre (1C), or centre, corners and their mirrors (10C), as in the papers.

    `whole` is all of it, squashed to the crop's size, so that nothing is cut off and `resize` does not matter;
    `mirrored` is that and its mirror; `views` are these two and the centres under both rules. `side` is the crops' size
    in pixels, the backbone's own unless told: networks that were trained on random crops saw things larger there, and
    are often better on somewhat larger squares.
    """

    name: CropName = "1C"
    resize: Resize = "square"
    side: Side | None = None

    @property
    def count(self) -> int:
        """How many crops a photo has."""
        return {"1C": 1, "10C": 10, "whole": 1, "mirrored": 2, "views": 4}[self.name]


def resized_side(side: int) -> int:
    """The side, or short side, to which a photo is resized before crops of `side` are taken."""
    return round(side * 256 / 224)


def load_for_crops(picture: Picture, side: int) -> Image.Image:
    """Decode a picture that crops of `side` are taken from; a large JPEG is decoded at a fraction of its size."""
    return decode(picture.path, resized_side(side)) if isinstance(picture, PictureFile) else picture.load()


def too_small(size: tuple[int, int], side: int) -> bool:
    """Whether a photo of this width and height is smaller than a crop; it is enlarged, which the caller may report."""
    return min(size) < side


def fixed_crops(image: Image.Image, crops: Crops, side: int) -> Pixels:
    """The crops of an RGB photo as bytes: (crops.count, 3, side, side).

    1C is the centre. 10C is top left, top right, bottom left, bottom right, centre, then their mirrors in that order.
    """
    if crops.name == "views":
        parts = [Crops(name="mirrored"), Crops(resize="square"), Crops(resize="short")]
        return np.concatenate([fixed_crops(image, part, side) for part in parts])
    if crops.name in ("whole", "mirrored"):
        resized = image.resize((side, side), Image.Resampling.BILINEAR)
    else:
        resized = _resized(image, crops.resize, side)
    pixels = np.asarray(resized)  # (height, width, 3)
    bottom, right = pixels.shape[0] - side, pixels.shape[1] - side
    centre = (round(bottom / 2), round(right / 2))
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    places = [*corners, centre] if crops.name == "10C" else [centre]
    out = np.empty((crops.count, 3, side, side), np.uint8)
    for number, (top, left) in enumerate(places):
        out[number] = pixels[top : top + side, left : left + side].transpose(2, 0, 1)
    if crops.count > len(places):
        out[len(places) :] = out[: len(places), :, :, ::-1]
    return out


def random_crop(image: Image.Image, resize: Resize, side: int, random: np.random.Generator) -> Pixels:
    """One random crop of an RGB photo as bytes, mirrored half of the time: (3, side, side).

    Under `square` any window of the resized square; under `short` a window of 8 to 100 % of the photo's area and a
    ratio from 3 : 4 to 4 : 3, resized. It depends on the photo and the generator alone.
    """
    if resize == "square":
        return random_window(image, resize, side, random)
    # resize() has a box, too, but looks beyond its edges
    window = image.crop(_random_box(image.size, random)).resize((side, side), Image.Resampling.BILINEAR)
    return _mirrored_half_of_the_time(window, random)


def random_window(image: Image.Image, resize: Resize, side: int, random: np.random.Generator) -> Pixels:
    """Any window of the resized photo as bytes, mirrored half of the time: (3, side, side).

    Things are as large in it as in the fixed crops. It depends on the photo and the generator alone.
    """
    resized = _resized(image, resize, side)
    left, top = (int(random.integers(0, length - side, endpoint=True)) for length in resized.size)
    return _mirrored_half_of_the_time(resized.crop((left, top, left + side, top + side)), random)


def _mirrored_half_of_the_time(window: Image.Image, random: np.random.Generator) -> Pixels:
    pixels = np.asarray(window)  # (side, side, 3)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return np.array(pixels.transpose(2, 0, 1), order="C")  # a copy: PIL's own pixels cannot be written


def _resized(image: Image.Image, resize: Resize, side: int) -> Image.Image:
    short = resized_side(side)
    if resize == "square":
        return image.resize((short, short), Image.Resampling.BILINEAR)
    shortest = min(image.size)
    width, height = (min(short * length // shortest, _LONGEST * short) for length in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _random_box(size: tuple[int, int], random: np.random.Generator) -> tuple[int, int, int, int]:
    """A random window as (left, top, right, bottom); the central square when ten tries do not fit into the photo."""
    width, height = size
    for _ in range(_TRIES):
        area = width * height * random.uniform(*_AREAS)
        ratio = math.exp(random.uniform(math.log(_RATIOS[0]), math.log(_RATIOS[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left = int(random.integers(0, width - across, endpoint=True))
            top = int(random.integers(0, height - down, endpoint=True))
            return left, top, left + across, top + down
    short = min(size)
    left, top = (width - short) // 2, (height - short) // 2
    return left, top, left + short, top + short
