"""The mean of a photo's regions: the vector of an embedding model from the features that a region model reads.

The regions are those of the region tower `backbone`, from the same feature store, so that a model of one vector per
photo and one of several can be compared on equal features.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.models.layers.precision import normalize
from diptych.models.layers.sets import mean_of_present
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.backbone import RegionBackbone, RegionBackboneSettings
from diptych.settings import Flag


class RegionMeanSettings(RegionBackboneSettings):
    """The regions of a region tower with a backbone; `normalise` divides their mean by its length."""

    name: Literal["region_mean"] = "region_mean"  # type: ignore[assignment]  # each file's own name, which its child replaces
    normalise: Flag = True

    def for_data(self, feature_shape: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus with its own regions needs no backbone; their mean is taken."""
        return self if feature_shape is None else FeatureSettings(shape=feature_shape, normalise=self.normalise)

    def build(self) -> RegionMean:
        """A tower with random weights."""
        return RegionMean(self)


class RegionMean(RegionBackbone):
    """The mean of a backbone's regions of each image."""

    def __init__(self, settings: RegionMeanSettings) -> None:
        super().__init__(settings)
        self.normalise = settings.normalise

    def forward(self, images: Tensor) -> Tensor:
        """Encode (images, 1, 3, side, side) bytes, or stored regions: (images, size)."""
        mean = mean_of_present(super().forward(images))
        return normalize(mean, dim=1) if self.normalise else mean
