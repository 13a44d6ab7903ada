"""The regions of a photo, seen by a pretrained backbone: the cells of its last map, or boxes pooled from it.

While the backbone is frozen its regions never change: training reads them from a feature store, and the tower passes
them through as they are.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.errors import RecipeError
from diptych.features.crops import Crops
from diptych.features.regions import Regions, check_whole_photo
from diptych.models.layers.pretrained import PretrainedSettings, PretrainedTower
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.region.features import RegionFeatureSettings


class RegionBackboneSettings(PretrainedSettings):
    """Regions of the whole photo, or of its centre (`1C`), through a named backbone.

    Proposed regions need the whole photo, and a backbone that stays frozen.
    """

    name: Literal["backbone"] = "backbone"
    crops: Literal["whole", "1C"] = "whole"
    regions: Regions = Regions()

    def for_data(self, features: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus that brings its own regions needs no backbone; they are read as they are."""
        return self if features is None else RegionFeatureSettings().for_data(features)

    def build(self) -> RegionBackbone:
        """The tower, its weights at random."""
        return RegionBackbone(self)


class RegionBackbone(PretrainedTower):
    """A backbone's regions of each image."""

    def __init__(self, settings: RegionBackboneSettings) -> None:
        crops = Crops(name=settings.crops, side=settings.side)
        if not settings.regions.from_map:
            raise RecipeError("regions: crops are no regions of a photo; use grid, selective-search or edge-boxes")
        check_whole_photo(settings.regions, crops)
        super().__init__(settings, crops, settings.regions)
        self.regions = settings.regions
        self.size = self.backbone.grid[1]

    def forward(self, images: Tensor) -> Tensor:
        """(images, 1, 3, side, side) bytes, or stored regions (images, regions, size), to (images, regions, size)."""
        if images.is_floating_point():
            return images
        if self.regions.are_boxes:
            raise RecipeError(f"{self.regions.method}: the regions are pooled before; give them, not the pixels")
        return self.backbone.regions(images.squeeze(1))
