"""Reads what the frozen first steps of a backbone compute, from a feature store (see `frozen_steps`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Integers
from diptych.data.image_reader import Draw
from diptych.features.backbone import Backbone
from diptych.features.extract import StoredFeatures
from diptych.features.frozen_steps import FrozenSteps, frozen_steps, map_spec
from diptych.features.image_input import ImageInput, pictures_of
from diptych.features.readers import FeatureReader, StoreOptions, drawn_crop, extracted_features


class MapReader(FeatureReader):
    """Reads the stored maps of the crops of each image: (images, crops, map size).

    With `one`, it reads one crop per image, drawn by the image and the draw: (images, 1, map size).
    """

    def __init__(self, stored: StoredFeatures, crops: int, *, one: bool) -> None:
        super().__init__(stored.features, stored.readable, stored.skipped, enlarged=stored.enlarged)
        self._crops, self._one = crops, one

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the maps of the readable images, and which those are."""
        if not self._one:
            return super().read(images, draw)
        rows, readable = self._rows(images)
        drawn = [drawn_crop(self._crops, image, draw) for image in images[readable].tolist()]
        return self._features.read_regions(rows, np.array(drawn, np.int64))[:, None], readable


def map_reader(
    corpus: Corpus, image_input: ImageInput, backbone: Backbone, store: StoreOptions, *, one: bool = False
) -> MapReader:
    """The reader of what the frozen first steps of a backbone compute, after computing what the store lacks.

    With `one`, one crop is drawn per image and read; all of them by default.
    """
    assert image_input.crops is not None, "a backbone reads crops"
    steps = FrozenSteps(backbone, frozen_steps(backbone), image_input.crops)
    stored = extracted_features(pictures_of(corpus), steps, map_spec(steps, image_input), store)
    return MapReader(stored, image_input.crops.count, one=one)
