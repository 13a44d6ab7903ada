"""What a pretrained pair computes, completely: its networks, how a photo becomes pixels, and how texts are padded.

It is read once from the files of the pair and then stored with the weights, so that a run opens without those files.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from diptych.features.choices import Interpolation, Rounding
from diptych.features.crops import Crops
from diptych.settings import Count, Number, Settings

Library = Literal["open_clip", "transformers"]
Colours = tuple[Number, Number, Number]

# The mean and the deviation of colours that CLIP was trained with, which are open_clip's defaults, too.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_DEVIATION = (0.26862954, 0.26130258, 0.27577711)


class Preprocessing(Settings):
    """How a photo becomes a square of `side` pixels, and how colours from 0 to 1 are normalised.

    `crop` is `"centre"` (the short side is resized to `side`, and the ends of the long side are cut off) or `"whole"`
    (the photo is squashed to the square). With `"patches"` the photo keeps its aspect ratio, and the square holds at
    most `patches` patches of side `patch` (`features/patches.py`).
    """

    side: Count
    crop: Literal["centre", "whole", "patches"]
    interpolation: Interpolation
    rounding: Rounding = "even"
    mean: Colours
    deviation: Colours
    patch: Count | None = None
    patches: Count | None = None

    def crops(self) -> Crops:
        """The crops that a backbone with this preprocessing sees; photos are decoded in full, as the library does."""
        return Crops(
            name=self.crop,
            interpolation=self.interpolation,
            rounding=self.rounding,
            full_size=True,
            patch=self.patch,
            patches=self.patches,
        )


class TextReading(Settings):
    """How the text network reads ids: at most `context` of them.

    A network that also reads the padding gets exactly `context` ids, filled with the id `fill` on one side.
    """

    context: Count
    fill: Annotated[int, Field(ge=0, strict=True)] | None = None
    fill_side: Literal["left", "right"] = "right"


class PairArchitecture(Settings):
    """The library that builds the networks, and their configuration there.

    `size` is that of the embeddings, `ids` the number of rows of the text network's table of tokens.
    """

    library: Library
    config: dict[str, Any]
    size: Count
    ids: Count
    image: Preprocessing
    text: TextReading
