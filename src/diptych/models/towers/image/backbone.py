"""A pretrained backbone, frozen or fine-tuned, over an image's crops.

While the backbone is frozen and the crops are fixed, its output never changes: training reads it from a feature store,
and the tower passes such vectors through unchanged. If only its first steps are frozen, the same holds for the maps
that they compute, and the tower continues from there.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from diptych.features.choices import CropName, Resize
from diptych.features.crops import Crops
from diptych.features.frozen_steps import frozen_steps, map_shape
from diptych.models.layers.precision import normalize
from diptych.models.layers.standardise import Standardise
from diptych.models.tower import ImageTowerSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.pretrained import PretrainedSettings, PretrainedTower, crop_vectors
from diptych.settings import Flag


class BackboneSettings(PretrainedSettings):
    """Images through a named backbone.

    `crops`, `resize` and `side` describe what is encoded and stored; a stage may train on random crops instead.
    `normalise` divides the backbone's vectors by their lengths, as the public code of VSE++ does. `standardise` then
    centres and scales each of their entries by its mean and standard deviation over the training images.
    """

    name: Literal["backbone"] = "backbone"
    crops: CropName = "1C"
    resize: Resize = "square"
    normalise: Flag = True
    standardise: Flag = False

    def for_data(self, feature_shape: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus with its own features needs no backbone; they are read unchanged."""
        return self if feature_shape is None else FeatureSettings(shape=feature_shape)

    def build(self) -> BackboneTower:
        """A tower with random weights."""
        return BackboneTower(self)


class BackboneTower(PretrainedTower):
    """The mean of a backbone's vectors over an image's crops."""

    reads_maps = True

    def __init__(self, settings: BackboneSettings) -> None:
        super().__init__(settings, Crops(name=settings.crops, resize=settings.resize, side=settings.side))
        self.size = self.backbone.size
        self.normalise = settings.normalise
        self.last = Standardise(self.size) if settings.standardise else None
        self._map_shapes: dict[int, torch.Size] = {}  # by the number of frozen steps

    @property
    def standardise(self) -> Standardise | None:
        """The layer after the backbone, if the settings ask for it."""
        return self.last

    def backbone_features(self, images: Tensor) -> Tensor:
        """The mean of the crops' vectors: (images, size)."""
        return crop_vectors(self.backbone, images).mean(1)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images: (images, size).

        They are (images, crops, 3, side, side) bytes, stored vectors (images, size), or the stored maps of the
        backbone's frozen steps, (images, crops, map size).
        """
        vectors = self._vectors(images)
        vectors = normalize(vectors, dim=1) if self.normalise else vectors
        return vectors if self.last is None else self.last(vectors)

    def _vectors(self, images: Tensor) -> Tensor:
        if not images.is_floating_point():
            return self.backbone_features(images)
        return images if images.dim() == 2 else self._finish(images)

    def _finish(self, maps: Tensor) -> Tensor:
        """The mean of the crops' vectors from the maps of the frozen steps: (images, size)."""
        steps = frozen_steps(self.backbone)
        if steps not in self._map_shapes:
            self._map_shapes[steps] = map_shape(self.backbone, steps, self.input.shape[-1])
        vectors = self.backbone.finish(maps.view(-1, *self._map_shapes[steps]), steps)
        return vectors.view(*maps.shape[:2], -1).mean(1)
