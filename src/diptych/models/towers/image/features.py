"""No network: the corpus comes with precomputed features."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.errors import DataError
from diptych.features.image_input import ImageInput
from diptych.models.layers.precision import normalize
from diptych.models.layers.sets import mean_of_present
from diptych.models.tower import ImageTower, ImageTowerSettings
from diptych.settings import Flag


class FeatureSettings(ImageTowerSettings):
    """Images as stored features; `normalise` divides each vector by its length."""

    name: Literal["features"] = "features"
    shape: tuple[int, ...] = ()
    normalise: Flag = False

    def for_data(self, feature_shape: tuple[int, ...] | None) -> FeatureSettings:
        """These settings with the shape of the corpus' features, which it must have."""
        if feature_shape is None:
            raise DataError(
                "the recipe reads stored features, and the corpus has only pictures; "
                "use a recipe with a backbone, such as `vsepp`, or one that reads pixels, such as `scenes`"
            )
        return self.model_copy(update={"shape": feature_shape})

    def build(self) -> StoredFeatures:
        """A tower with random weights."""
        return StoredFeatures(self)


class StoredFeatures(ImageTower):
    """Stored features, unchanged; several regions per image are averaged, without the missing ones."""

    def __init__(self, settings: FeatureSettings) -> None:
        super().__init__()
        self.input = ImageInput("features", settings.shape)
        self.size = settings.shape[-1]
        self.normalise = settings.normalise

    def forward(self, images: Tensor) -> Tensor:
        """Encode (images, size) or (images, regions, size): (images, size)."""
        vectors = images if images.dim() == 2 else mean_of_present(images)
        return normalize(vectors, dim=1) if self.normalise else vectors
