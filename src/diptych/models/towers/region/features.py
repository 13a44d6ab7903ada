"""No network: the corpus comes with precomputed regions, such as the papers' 36 x 2048."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.errors import DataError
from diptych.features.image_input import ImageInput
from diptych.models.tower import ImageTower, ImageTowerSettings


class RegionFeatureSettings(ImageTowerSettings):
    """Images as stored regions, (regions, size) per image; an image with fewer has rows of zeros at the end."""

    name: Literal["features"] = "features"
    shape: tuple[int, ...] = ()

    def for_data(self, feature_shape: tuple[int, ...] | None) -> RegionFeatureSettings:
        """These settings with the shape of the corpus' features, which must be regions."""
        if feature_shape is None:
            raise DataError(
                "the recipe reads stored regions and the corpus has only pictures; "
                'use a backbone, such as model.image = { name = "backbone" }'
            )
        if len(feature_shape) != 2:
            raise DataError(
                "the model reads several regions per image, and the corpus has one vector of size "
                f"{feature_shape[0]} per image; use a recipe such as `vsepp`"
            )
        return self.model_copy(update={"shape": feature_shape})

    def build(self) -> StoredRegions:
        """A tower with random weights."""
        return StoredRegions(self)


class StoredRegions(ImageTower):
    """Stored regions, unchanged."""

    def __init__(self, settings: RegionFeatureSettings) -> None:
        super().__init__()
        self.input = ImageInput("features", settings.shape)
        self.size = settings.shape[-1]

    def forward(self, images: Tensor) -> Tensor:
        """Return the regions: (images, regions, size)."""
        return images
