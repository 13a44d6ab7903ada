"""The base of image and region towers with a pretrained backbone: its weights, and its batch statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from typing_extensions import Self

from diptych.features.backbone import Backbone, crop_side
from diptych.features.backbones.registry import build_backbone, load_backbone
from diptych.features.crops import Crops, Side
from diptych.features.image_input import ImageInput
from diptych.features.regions import Regions
from diptych.models.tower import ImageTower, ImageTowerSettings

CROPS_AT_ONCE = 32


class PretrainedSettings(ImageTowerSettings):
    """A named backbone and the side of its crops.

    `weights` is a file to load instead of the backbone's own pretrained weights. `batch_norm = "frozen"` keeps the
    pretrained running statistics of batch normalisation (not its weights) even if the backbone is trained: a batch has
    too few images to estimate them again. With `"trained"` they are updated.
    """

    backbone: str = "lite0"
    weights: str | None = None
    side: Side | None = None
    batch_norm: Literal["frozen", "trained"] = "frozen"


class PretrainedTower(ImageTower):
    """A tower around a backbone that reads these crops; its weights are random until `load_pretrained`."""

    def __init__(self, settings: PretrainedSettings, crops: Crops, regions: Regions | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = build_backbone(settings.backbone)
        side = crop_side(crops, self.backbone)
        self.input = ImageInput("crops", (3, side, side), crops, regions)

    def train(self, mode: bool = True) -> Self:
        """Set training mode, except for batch normalisation whose statistics are frozen."""
        super().train(mode)
        if self.settings.batch_norm == "frozen":
            freeze_batch_statistics(self.backbone)
        return self

    @property
    def pretrained(self) -> Backbone:
        """The backbone."""
        return self.backbone

    @property
    def pretrained_weights(self) -> Path | None:
        """The file that the settings name, if any."""
        return None if self.settings.weights is None else Path(self.settings.weights)

    def load_pretrained(self) -> None:
        """Load the pretrained weights."""
        loaded = load_backbone(self.settings.backbone, self.pretrained_weights)
        self.backbone.load_state_dict(loaded.state_dict())


def freeze_batch_statistics(network: nn.Module) -> None:
    """Put batch normalisation into evaluation mode, so that it keeps its statistics."""
    for module in network.modules():
        if isinstance(module, BatchNorm):
            module.eval()


def crop_vectors(backbone: Backbone, images: Tensor) -> Tensor:
    """Encode each crop: (images, crops, 3, side, side) bytes to (images, crops, size)."""
    pixels = images.flatten(0, 1)  # (images * crops, 3, side, side)
    # In parts, so that the large maps of frozen blocks are never in memory for all. Batch normalisation that estimates
    # its statistics needs the whole batch, and so does the trace of an export, in which the batch size is unknown.
    estimates = any(isinstance(module, BatchNorm) and module.training for module in backbone.modules())
    parts = [pixels] if estimates or torch.compiler.is_compiling() else torch.split(pixels, CROPS_AT_ONCE)
    return torch.cat([backbone(part) for part in parts]).view(*images.shape[:2], -1)
