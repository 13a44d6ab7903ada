"""The regions of a photo from a pretrained backbone: the cells of its last map, or boxes pooled from it.

While the backbone is frozen its regions never change: training reads them from a feature store, and the tower passes
them through unchanged.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.errors import RecipeError
from diptych.features.crops import Crops
from diptych.features.regions import Regions, check_whole_photo
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.pretrained import PretrainedSettings, PretrainedTower
from diptych.models.towers.region.features import RegionFeatureSettings


class RegionBackboneSettings(PretrainedSettings):
    """Regions of the whole photo, or of its centre (`1C`), through a named backbone.

    Proposed regions need the whole photo, and a backbone that stays frozen.
    """

    name: Literal["backbone"] = "backbone"
    crops: Literal["whole", "1C"] = "whole"
    regions: Regions = Regions()

    def for_data(self, feature_shape: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus with its own regions needs no backbone; they are read unchanged."""
        return self if feature_shape is None else RegionFeatureSettings().for_data(feature_shape)

    def build(self) -> RegionBackbone:
        """A tower with random weights."""
        return RegionBackbone(self)


class RegionBackbone(PretrainedTower):
    """A backbone's regions of each image."""

    def __init__(self, settings: RegionBackboneSettings) -> None:
        crops = Crops(name=settings.crops, side=settings.side)
        if not settings.regions.from_map:
            raise RecipeError("regions: crops are not regions of a photo; use grid, selective-search or edge-boxes")
        check_whole_photo(settings.regions, crops)
        super().__init__(settings, crops, settings.regions)
        self.regions = settings.regions
        self.size = self.backbone.grid[1]

    def backbone_features(self, images: Tensor) -> Tensor:
        """The cells of the last map: (images, cells, size)."""
        if self.regions.are_boxes:
            raise RecipeError(
                f"{self.regions.method}: regions are pooled beforehand; pass their vectors instead of pixels"
            )
        return self.backbone.regions(images.squeeze(1))

    def forward(self, images: Tensor) -> Tensor:
        """Encode (images, 1, 3, side, side) bytes, or stored regions: (images, regions, size)."""
        return images if images.is_floating_point() else self.backbone_features(images)
