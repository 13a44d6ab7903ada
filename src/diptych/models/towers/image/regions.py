"""Single regions of photos from a frozen backbone, as localisation trains on them.

The vectors of proposed boxes, and of the boxes in the data, are pooled from the backbone's last map before training and
read from a feature store; the tower passes them through, for one region or all regions of a photo.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.errors import RecipeError
from diptych.features.crops import Crops
from diptych.features.regions import Regions, check_whole_photo
from diptych.models.layers.precision import normalize
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.pretrained import PretrainedSettings, PretrainedTower
from diptych.settings import Flag


class RegionSettings(PretrainedSettings):
    """Proposed regions of the whole photo; `normalise` divides each vector by its length."""

    name: Literal["regions"] = "regions"
    regions: Regions = Regions(method="selective-search", count=200, smallest=0.05, overlap=0.8)
    normalise: Flag = True

    def for_data(self, feature_shape: tuple[int, ...] | None) -> ImageTowerSettings:
        """Refuse stored features: regions are pooled from photos."""
        if feature_shape is not None:
            raise RecipeError("model.image: 'regions' are pooled from photos, and the data has only features")
        return self

    def build(self) -> RegionTower:
        """A tower with random weights."""
        return RegionTower(self)


class RegionTower(PretrainedTower):
    """One vector per region, as it was pooled."""

    def __init__(self, settings: RegionSettings) -> None:
        crops = Crops(name="whole", side=settings.side)
        if not settings.regions.are_boxes:
            raise RecipeError("model.image.regions: cells of a grid are not boxes; use selective-search or edge-boxes")
        check_whole_photo(settings.regions, crops)
        super().__init__(settings, crops, settings.regions)
        self.size = self.backbone.grid[1]
        self.normalise = settings.normalise

    def forward(self, images: Tensor) -> Tensor:
        """Normalise pooled regions, (..., size); the zeros of missing regions stay zeros."""
        if not images.is_floating_point():
            raise RecipeError("regions are pooled beforehand; pass their vectors instead of pixels")
        return normalize(images, dim=-1) if self.normalise else images
