"""No network: the corpus brings regions that were computed beforehand, such as the originals' 36 x 2048."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.errors import DataError
from diptych.features.image_input import ImageInput
from diptych.models.tower import ImageTower, ImageTowerSettings


class RegionFeatureSettings(ImageTowerSettings):
    """Images as stored regions, (regions, size) an image; an image with fewer has rows of zeros at the end."""

    name: Literal["features"] = "features"
    shape: tuple[int, ...] = ()

    def for_data(self, features: tuple[int, ...] | None) -> RegionFeatureSettings:
        """These settings with the shape of the corpus' features, which must be regions."""
        if features is None:
            raise DataError(
                "the recipe reads stored regions and the corpus has only pictures; "
                'use a backbone, such as model.image = { name = "backbone" }'
            )
        if len(features) != 2:
            raise DataError(
                f"the model reads several regions an image, and the corpus has one vector of {features[0]} an image; "
                "use a recipe such as `vsepp`"
            )
        return self.model_copy(update={"shape": features})

    def build(self) -> StoredRegions:
        """The tower."""
        return StoredRegions(self)


class StoredRegions(ImageTower):
    """Stored regions as they are."""

    def __init__(self, settings: RegionFeatureSettings) -> None:
        super().__init__()
        self.input = ImageInput("features", settings.shape)
        self.size = settings.shape[-1]

    def forward(self, images: Tensor) -> Tensor:
        """(images, regions, size), as they came."""
        return images
