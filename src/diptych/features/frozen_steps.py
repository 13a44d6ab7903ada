"""The frozen first steps of a backbone that is fine-tuned: what they compute of fixed crops can be stored.

Fine-tuning the last blocks of a network spends most of its time in the blocks before them, which give the same maps in
every epoch. `FrozenSteps` is these blocks as a backbone of their own, whose vector is the map, row by row, so that
feature stores hold its output like any other. `Backbone.finish` continues from there.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from diptych.features.backbone import Backbone, crop_side
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.regions import Regions
from diptych.features.store import FeatureStoreSpec

_ALL_CROPS = Regions(method="crops")  # one row per crop instead of their mean


class FrozenSteps(Backbone):
    """The first steps of a backbone, at the side of some crops; `map_shape` is (channels, rows, columns)."""

    def __init__(self, backbone: Backbone, steps: int, crops: Crops) -> None:
        super().__init__()
        self.name = f"{backbone.name}[:{steps}]"
        self.side, self.any_side, self.grid = crop_side(crops, backbone), backbone.any_side, (0, 0)
        self.count = steps
        self.network = nn.ModuleList(backbone.steps[:steps])  # for the digest of the weights, and for the device
        object.__setattr__(self, "_backbone", backbone)  # which does not register the steps that are trained
        self.map_shape = map_shape(backbone, steps, self.side)
        self.size = self.map_shape.numel()

    _backbone: Backbone

    def regions(self, pixels: Tensor) -> Tensor:
        """Raise NotImplementedError: the maps are the vectors."""
        raise NotImplementedError("the first steps of a backbone have no regions")

    def forward(self, pixels: Tensor) -> Tensor:
        """(images, 3, side, side) bytes to maps, row by row: (images, channels x rows x columns)."""
        return self._backbone.begin(pixels, self.count).flatten(1)


def frozen_steps(backbone: Backbone) -> int:
    """How many of the first steps of a backbone have no trainable weight; 0 if it is not a sequence of steps."""
    count = 0
    for step in backbone.steps:
        if any(parameter.requires_grad for parameter in step.parameters()):
            break
        count += 1
    return count


@torch.inference_mode()
def map_shape(backbone: Backbone, steps: int, side: int) -> torch.Size:
    """The shape of the map after some steps, (channels, rows, columns), for crops of this side."""
    shapes = copy.deepcopy(backbone).to("meta").eval()  # computes nothing, and changes no statistics of the backbone
    return shapes.begin(torch.zeros(1, 3, side, side, dtype=torch.uint8, device="meta"), steps).shape[1:]


def map_spec(steps: FrozenSteps, image_input: ImageInput) -> FeatureStoreSpec:
    """How the maps of an image's crops are stored: one row per crop, as float16."""
    assert image_input.crops is not None, "a backbone reads crops"
    return FeatureStoreSpec.for_backbone(steps, image_input.crops, regions=_ALL_CROPS, dtype="float16")
