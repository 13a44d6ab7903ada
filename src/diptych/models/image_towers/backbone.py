"""A pretrained backbone, frozen or fine-tuned, over an image's crops.

While it is frozen and the crops are fixed, its output never changes: training then reads it from a feature store, and
the tower passes such vectors through as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from diptych.features.backbone import Backbone, side_of
from diptych.features.choices import CropName, Resize
from diptych.features.crops import Crops, Side
from diptych.features.names import build_backbone, load_backbone
from diptych.features.reader import ImageInput
from diptych.models.image_towers.features import FeatureSettings
from diptych.models.towers import ImageTower, ImageTowerSettings
from diptych.settings import Flag

CROPS_AT_ONCE = 32


class BackboneSettings(ImageTowerSettings):
    """Images through a named backbone.

    `crops`, `resize` and `side` are what is encoded and stored; a stage may train on random crops instead. `weights` is
    a file to take the backbone's weights from instead of its own pretrained ones. `normalise` divides the backbone's
    vectors by their lengths, as the public code of VSE++ does. `batch_norm = "frozen"` keeps the statistics (and not
    the weights) of batch normalisation as they were pretrained even where the backbone is trained: a batch holds too
    few images of another kind than ImageNet's to estimate them anew; `"trained"` lets them move.
    """

    name: Literal["backbone"] = "backbone"
    backbone: str = "lite0"
    weights: str | None = None
    crops: CropName = "1C"
    resize: Resize = "square"
    side: Side | None = None
    normalise: Flag = True
    batch_norm: Literal["frozen", "trained"] = "frozen"

    def fitted(self, features: tuple[int, ...] | None) -> ImageTowerSettings:
        """A corpus that brings its own features needs no backbone; they are read as they are."""
        return self if features is None else FeatureSettings(shape=features)

    def build(self) -> BackboneTower:
        """The tower, its weights at random."""
        return BackboneTower(self)


class BackboneTower(ImageTower):
    """The mean of a backbone's vectors over an image's crops."""

    def __init__(self, settings: BackboneSettings) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = build_backbone(settings.backbone)
        self.size = self.backbone.size
        crops = Crops(name=settings.crops, resize=settings.resize, side=settings.side)
        side = side_of(crops, self.backbone)
        self.input = ImageInput("crops", (3, side, side), crops)

    def forward(self, images: Tensor) -> Tensor:
        """(images, crops, 3, side, side) bytes, or stored vectors (images, size), to (images, size)."""
        vectors = images if images.is_floating_point() else self._of_crops(images)
        return normalize(vectors, dim=1) if self.settings.normalise else vectors

    def _of_crops(self, images: Tensor) -> Tensor:
        count, crops = images.shape[:2]
        pixels = images.flatten(0, 1)  # (images * crops, 3, side, side)
        # A part at a time, so that the large maps of frozen blocks are never held for all; only batch normalisation
        # that estimates its statistics has to see the whole batch.
        estimates = any(isinstance(module, BatchNorm) and module.training for module in self.backbone.modules())
        parts = [pixels] if estimates else torch.split(pixels, CROPS_AT_ONCE)
        vectors = torch.cat([self.backbone(part) for part in parts])
        return vectors.view(count, crops, -1).mean(1)

    def train(self, mode: bool = True) -> BackboneTower:
        """Training mode, except for the statistics of batch normalisation where those are to stay."""
        super().train(mode)
        if self.settings.batch_norm == "frozen":
            for module in self.backbone.modules():
                if isinstance(module, BatchNorm):
                    module.eval()
        return self

    @property
    def pretrained(self) -> Backbone:
        """The backbone."""
        return self.backbone

    def start(self) -> None:
        """Load the pretrained weights."""
        weights = self.settings.weights
        loaded = load_backbone(self.settings.backbone, None if weights is None else Path(weights))
        self.backbone.load_state_dict(loaded.state_dict())
