"""A pretrained backbone that keeps the crops of an image apart: one vector each, such as for a photo and its mirror.

A model can then train on one of them at a time and average its output over all. While the backbone is frozen and the
crops are fixed, training reads the vectors from a feature store.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.features.choices import CropName, Resize
from diptych.features.crops import Crops
from diptych.features.regions import Regions
from diptych.models.layers.precision import normalize
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.pretrained import PretrainedSettings, PretrainedTower, crop_vectors
from diptych.settings import Flag


class ViewsSettings(PretrainedSettings):
    """Views of an image, its crops, through a named backbone; `normalise` divides each vector by its length.

    `crops`, `resize` and `side` describe what is encoded and stored; a stage may train on one random crop instead.
    """

    name: Literal["views"] = "views"
    crops: CropName = "mirrored"
    resize: Resize = "square"
    normalise: Flag = False

    def for_data(self, feature_shape: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus with its own features needs no backbone: one vector per image, without views."""
        return self if feature_shape is None else FeatureSettings(shape=feature_shape, normalise=self.normalise)

    def build(self) -> ViewsTower:
        """A tower with random weights."""
        return ViewsTower(self)


class ViewsTower(PretrainedTower):
    """A backbone's vector of each crop of an image."""

    def __init__(self, settings: ViewsSettings) -> None:
        crops = Crops(name=settings.crops, resize=settings.resize, side=settings.side)
        super().__init__(settings, crops, Regions(method="crops"))
        self.size = self.backbone.size
        self.normalise = settings.normalise

    def backbone_features(self, images: Tensor) -> Tensor:
        """The vector of each crop: (images, crops, size)."""
        return crop_vectors(self.backbone, images)

    def forward(self, images: Tensor) -> Tensor:
        """Encode (images, crops, 3, side, side) bytes, or stored views: (images, crops, size)."""
        vectors = images if images.is_floating_point() else self.backbone_features(images)
        return normalize(vectors, dim=2) if self.normalise else vectors
