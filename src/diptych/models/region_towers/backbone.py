"""The regions of a photo, seen by a pretrained backbone: the cells of its last map, or boxes pooled from it.

While the backbone is frozen its regions never change: training reads them from a feature store, and the tower passes
them through as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import Tensor

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone, side_of
from diptych.features.crops import Crops, Side
from diptych.features.names import build_backbone, load_backbone
from diptych.features.reader import ImageInput
from diptych.features.regions import Regions, check_seen
from diptych.models.region_towers.features import RegionFeatureSettings
from diptych.models.towers import ImageTower, ImageTowerSettings


class RegionBackboneSettings(ImageTowerSettings):
    """Regions of the whole photo, or of its centre (`1C`), through a named backbone.

    `weights` is a file to take the backbone's weights from instead of its own pretrained ones. Proposed regions need
    the whole photo, and a backbone that stays frozen.
    """

    name: Literal["backbone"] = "backbone"
    backbone: str = "lite0"
    weights: str | None = None
    crops: Literal["whole", "1C"] = "whole"
    side: Side | None = None
    regions: Regions = Regions()

    def fitted(self, features: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus that brings its own regions needs no backbone; they are read as they are."""
        return self if features is None else RegionFeatureSettings().fitted(features)

    def build(self) -> RegionBackbone:
        """The tower, its weights at random."""
        return RegionBackbone(self)


class RegionBackbone(ImageTower):
    """A backbone's regions of each image."""

    def __init__(self, settings: RegionBackboneSettings) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = build_backbone(settings.backbone)
        self.size = self.backbone.grid[1]
        crops = Crops(name=settings.crops, side=settings.side)
        check_seen(settings.regions, crops)
        side = side_of(crops, self.backbone)
        self.input = ImageInput("crops", (3, side, side), crops, settings.regions)

    def forward(self, images: Tensor) -> Tensor:
        """(images, 1, 3, side, side) bytes, or stored regions (images, regions, size), to (images, regions, size)."""
        if images.is_floating_point():
            return images
        if self.settings.regions.proposed:
            raise RecipeError(
                f"{self.settings.regions.method}: the regions are pooled before; give them, not the pixels"
            )
        return self.backbone.regions(images.squeeze(1))

    @property
    def pretrained(self) -> Backbone:
        """The backbone."""
        return self.backbone

    def start(self) -> None:
        """Load the pretrained weights."""
        weights = self.settings.weights
        loaded = load_backbone(self.settings.backbone, None if weights is None else Path(weights))
        self.backbone.load_state_dict(loaded.state_dict())
