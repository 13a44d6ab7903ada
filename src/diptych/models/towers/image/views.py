"""A pretrained backbone whose crops of an image are kept apart: a vector each, such as the photo's and its mirror's.

A model may then learn from one of them at a time, and average what it makes of them. While the backbone is frozen and
the crops are fixed, training reads the vectors from a feature store.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import normalize

from diptych.features.choices import CropName, Resize
from diptych.features.crops import Crops
from diptych.features.regions import Regions
from diptych.models.layers.pretrained import PretrainedSettings, PretrainedTower, crop_vectors
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.settings import Flag


class ViewsSettings(PretrainedSettings):
    """Views of an image, its crops, through a named backbone; `normalise` divides each vector by its length.

    `crops`, `resize` and `side` are what is encoded and stored; a stage may train on one random crop instead.
    """

    name: Literal["views"] = "views"
    crops: CropName = "mirrored"
    resize: Resize = "square"
    normalise: Flag = False

    def for_data(self, features: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus that brings its own features needs no backbone: one vector an image, without views."""
        return self if features is None else FeatureSettings(shape=features, normalise=self.normalise)

    def build(self) -> ViewsTower:
        """The tower, its weights at random."""
        return ViewsTower(self)


class ViewsTower(PretrainedTower):
    """A backbone's vector of each crop of an image."""

    def __init__(self, settings: ViewsSettings) -> None:
        crops = Crops(name=settings.crops, resize=settings.resize, side=settings.side)
        super().__init__(settings, crops, Regions(method="crops"))
        self.size = self.backbone.size
        self.normalise = settings.normalise

    def forward(self, images: Tensor) -> Tensor:
        """(images, crops, 3, side, side) bytes, or stored views (images, crops, size), to (images, crops, size)."""
        vectors = images if images.is_floating_point() else crop_vectors(self.backbone, images)
        return normalize(vectors, dim=2) if self.normalise else vectors
