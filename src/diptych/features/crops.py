"""Crops: the squares of a photo that a backbone sees.

A photo is first resized, either to a larger square (`square`, as in the VSE++ paper, section 3: 256 x 256 for crops of
224) or by its short side (`short`, as in the code of the paper). Crops of other sides keep the ratio 256 : 224.
Pretrained pairs see a photo as they were trained to: without a margin, interpolated their way, and decoded in full.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from diptych.data.corpus import Picture
from diptych.data.images import load_for_side
from diptych.features.choices import CropName, Interpolation, Quality, Resize, Rounding
from diptych.features.patches import packed_patches
from diptych.settings import Count, Flag, Settings

Pixels = NDArray[np.uint8]

# Networks halve their maps five times, which would cut off a border of other sides.
Side = Annotated[int, Field(ge=32, le=1024, multiple_of=32, strict=True)]

_METHODS: dict[Interpolation, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
_CENTRES = {resize: {"name": "1C", "resize": resize} for resize in ("square", "short")}
_JOINED = {
    "views": ({"name": "mirrored"}, _CENTRES["square"], _CENTRES["short"]),
    "scales": ({"name": "whole"}, _CENTRES["short"]),
}
_LONGEST = 32  # a strip thinner than 1 : 32 is squashed to that, or a photo of 1 x 100,000 pixels would fill the memory
_TRIES = 10
_AREAS = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)


class Crops(Settings):
    """Which squares of a photo a backbone sees, by `name`.

    - `1C` and `10C`, as in the papers: the centre; the centre, the four corners and the mirror images of all five.
    - `whole`: the whole photo, squashed to a square, so that nothing is cut off and `resize` does not matter.
    - `mirrored`: the whole photo and its mirror image.
    - `views`: these two, and the centre after either kind of `resize`.
    - `scales`: the whole photo, and the centre after `short`: half the work of `views`, and almost as good.
    - `patches`: the whole photo in its own aspect ratio, as at most `patches` patches of side `patch` (`patches.py`).
    - `centre`: the photo with its short side resized to the crop's, so that only the ends of its long side are cut off.

    `side` is the size of a crop in pixels and defaults to the backbone's. Networks that were trained on random crops
    saw objects enlarged, and are often better on somewhat larger squares.

    `full_size` decodes the whole photo; by default a large JPEG is decoded at a fraction of its size. `rounding` is how
    `centre` rounds half a pixel: to an even number, as torchvision does, or down, as transformers does.
    """

    name: CropName | Literal["patches"] = "1C"
    resize: Resize = "square"
    side: Side | None = None
    interpolation: Interpolation = "bilinear"
    full_size: Flag = False
    rounding: Rounding = "even"
    patch: Count | None = None
    patches: Count | None = None

    @property
    def count(self) -> int:
        """The number of crops per photo."""
        return {"10C": 10, "mirrored": 2, "views": 4, "scales": 2}.get(self.name, 1)


def crops_for(quality: Quality, crops: Crops | None) -> tuple[Crops | None, Quality]:
    """The crops to encode images with, given those of a model, and the quality that this is.

    For "fast", `scales` stand in for `views`, whose mean is almost the same; with other crops, or without any, there is
    only one quality, "best".
    """
    if quality == "best" or crops is None or crops.name != "views":
        return crops, "best"
    return crops.model_copy(update={"name": "scales"}), "fast"


def resized_side(side: int) -> int:
    """The side, or short side, that a photo is resized to before crops of `side` are taken."""
    return round(side * 256 / 224)


def decode_size(side: int, crops: Crops | None) -> int | None:
    """The size that photos are decoded for (see `decode`), for crops of `side` or squares without crops; None: full."""
    if crops is None:
        return side
    return None if crops.full_size else resized_side(side)


def load_for_crops(picture: Picture, crops: Crops, side: int) -> Image.Image:
    """Decode a picture that crops of `side` are taken from; a large JPEG may be decoded at a fraction of its size."""
    return load_for_side(picture, decode_size(side, crops))


def too_small(size: tuple[int, int], side: int) -> bool:
    """Whether a photo of this width and height is smaller than a crop, and is therefore enlarged."""
    return min(size) < side


def fixed_crops(image: Image.Image, crops: Crops, side: int) -> Pixels:
    """The crops of an RGB photo as bytes: (crops.count, 3, side, side).

    The order of 10C is top left, top right, bottom left, bottom right, centre, then their mirror images.
    """
    if crops.name == "patches":
        assert crops.patch is not None
        assert crops.patches is not None
        return packed_patches(image, crops.patch, crops.patches, _METHODS[crops.interpolation])[None]
    if crops.name in _JOINED:
        parts = [crops.model_copy(update=change) for change in _JOINED[crops.name]]
        return np.concatenate([fixed_crops(image, part, side) for part in parts])
    pixels = np.asarray(_resized_for(crops, image, side))  # (height, width, 3)
    bottom, right = pixels.shape[0] - side, pixels.shape[1] - side
    centre = (bottom // 2, right // 2) if crops.rounding == "down" else (round(bottom / 2), round(right / 2))
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    origins = [*corners, centre] if crops.name == "10C" else [centre]
    out = np.empty((crops.count, 3, side, side), np.uint8)
    for number, (top, left) in enumerate(origins):
        out[number] = pixels[top : top + side, left : left + side].transpose(2, 0, 1)
    if crops.count > len(origins):
        out[len(origins) :] = out[: len(origins), :, :, ::-1]
    return out


def random_crop(image: Image.Image, resize: Resize, side: int, random: np.random.Generator) -> Pixels:
    """A random crop of an RGB photo as bytes, mirrored with probability 1/2: (3, side, side).

    With `square` it is a window of the resized square; with `short` it is a part of the photo with 8 to 100 % of its
    area and an aspect ratio of 3 : 4 to 4 : 3, which is then resized. It depends only on the photo and the generator.
    """
    if resize == "square":
        return random_window(image, resize, side, random)
    # resize() with a box would look at pixels outside of it
    window = image.crop(_random_box(image.size, random)).resize((side, side), Image.Resampling.BILINEAR)
    return _randomly_mirrored(window, random)


def random_window(image: Image.Image, resize: Resize, side: int, random: np.random.Generator) -> Pixels:
    """A random window of the resized photo as bytes, mirrored with probability 1/2: (3, side, side).

    Objects have the same size as in the fixed crops. The window depends only on the photo and the generator.
    """
    resized = _resized(image, resize, side)
    left, top = (int(random.integers(0, length - side, endpoint=True)) for length in resized.size)
    return _randomly_mirrored(resized.crop((left, top, left + side, top + side)), random)


def _randomly_mirrored(window: Image.Image, random: np.random.Generator) -> Pixels:
    pixels = np.asarray(window)  # (side, side, 3)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return np.array(pixels.transpose(2, 0, 1), order="C")  # a copy, because the pixels of PIL are read-only


def _resized_for(crops: Crops, image: Image.Image, side: int) -> Image.Image:
    """The photo at the size that fixed crops are cut from."""
    method = _METHODS[crops.interpolation]
    if crops.name in ("whole", "mirrored"):
        return image.resize((side, side), method)
    if crops.name == "centre":
        return _short_side_resized(image, side, method)
    return _resized(image, crops.resize, side, method)


def _resized(
    image: Image.Image, resize: Resize, side: int, method: Image.Resampling = Image.Resampling.BILINEAR
) -> Image.Image:
    short = resized_side(side)
    return image.resize((short, short), method) if resize == "square" else _short_side_resized(image, short, method)


def _short_side_resized(image: Image.Image, short: int, method: Image.Resampling) -> Image.Image:
    shortest = min(image.size)
    width, height = (min(short * length // shortest, _LONGEST * short) for length in image.size)
    return image.resize((width, height), method)


def _random_box(size: tuple[int, int], random: np.random.Generator) -> tuple[int, int, int, int]:
    """A random box (left, top, right, bottom); the central square if ten draws do not fit into the photo."""
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
