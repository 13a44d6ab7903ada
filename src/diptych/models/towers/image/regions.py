"""One region of a photo at a time, seen by a frozen backbone: what localisation trains on.

The vectors of proposed boxes, and of the boxes that came with the data, are pooled from the backbone's last map before
training and read from a feature store; the tower passes them through, one region or all regions of a photo.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.features.crops import Crops
from diptych.features.regions import Regions, check_whole_photo
from diptych.models.layers.pretrained import PretrainedSettings, PretrainedTower
from diptych.models.tower import ImageTowerSettings
from diptych.settings import Flag


class RegionSettings(PretrainedSettings):
    """Proposed regions of the whole photo; `normalise` divides each one's vector by its length."""

    name: Literal["regions"] = "regions"
    regions: Regions = Regions(method="selective-search", count=200, smallest=0.05, overlap=0.8)
    normalise: Flag = True

    def for_data(self, features: tuple[int, ...] | None) -> ImageTowerSettings:
        """Regions are pooled from photos; stored features cannot be."""
        if features is not None:
            raise RecipeError("model.image: 'regions' are pooled from photos, and the data has features without photos")
        return self

    def build(self) -> RegionTower:
        """The tower, its weights at random."""
        return RegionTower(self)


class RegionTower(PretrainedTower):
    """A vector a region, as it was pooled."""

    def __init__(self, settings: RegionSettings) -> None:
        crops = Crops(name="whole", side=settings.side)
        if not settings.regions.are_boxes:
            raise RecipeError("model.image.regions: cells of a grid are no boxes; use selective-search or edge-boxes")
        check_whole_photo(settings.regions, crops)
        super().__init__(settings, crops, settings.regions)
        self.size = self.backbone.grid[1]
        self.normalise = settings.normalise

    def forward(self, images: Tensor) -> Tensor:
        """Pooled regions, (..., size), to the same, each of length one; zeros, which are no region, stay zeros."""
        if not images.is_floating_point():
            raise RecipeError("the regions of a photo are pooled before; give their vectors, not its pixels")
        return normalize(images, dim=-1) if self.normalise else images
