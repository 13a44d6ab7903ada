"""What an image tower reads: stored vectors, small squares of pixels, or the crops that a backbone sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from diptych.data.corpus import Corpus, Picture
from diptych.errors import DataError
from diptych.features.crops import Crops
from diptych.features.regions import Regions


@dataclass(frozen=True)
class ImageInput:
    """What an image tower reads of each image.

    - `pixels`: the whole image as bytes of this shape, (3, side, side).
    - `features`: the vectors that came with the corpus, of this shape.
    - `crops`: the image's crops as bytes, each of this shape. A backbone turns them into one vector per image or, if
      there are `regions`, into several.
    """

    kind: Literal["pixels", "features", "crops"]
    shape: tuple[int, ...]
    crops: Crops | None = None
    regions: Regions | None = None

    @property
    def reads_map(self) -> bool:
        """Whether the regions are pooled from the backbone's last feature map."""
        return self.regions is not None and self.regions.from_map


def pictures_of(corpus: Corpus) -> Sequence[Picture]:
    """The pictures of a corpus; raises DataError if it only has stored features."""
    if corpus.pictures is None:
        raise DataError(f"{corpus.name}: has stored features but no pictures; use a recipe that reads features")
    return corpus.pictures
