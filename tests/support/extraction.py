"""Extracts features with the tiny backbone, and computes the same features picture by picture."""

import numpy as np
import torch

from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.roi_align import roi_align
from diptych.features.store import FeatureStoreSpec
from diptych.ranks import ALONE
from support.backbones import TinyBackbone

CPU = torch.device("cpu")


def extract_tiny(
    pictures,
    folder,
    backbone=None,
    *,
    crops="1C",
    regions=None,
    dtype="float32",
    workers=2,
    progress=None,
    boxes=None,
    ranks=ALONE,
):
    backbone = backbone or TinyBackbone()
    spec = FeatureStoreSpec.for_backbone(backbone, Crops(name=crops), regions=regions, dtype=dtype)
    return extract(
        pictures, backbone, spec, folder, workers=workers, device=CPU, progress=progress, boxes=boxes, ranks=ranks
    )


def expected_rows(pictures, *, crops="1C", regions=None, dtype="float32"):
    """The features of each picture by itself."""
    backbone = TinyBackbone()
    rows = []
    for picture in pictures:
        squares = torch.from_numpy(fixed_crops(picture.load(), Crops(name=crops), TinyBackbone.side))
        rows.append((backbone.regions if regions else backbone)(squares).detach().mean(0).numpy())
    return np.stack(rows).astype(dtype).astype(np.float32)


def expected_regions(picture, boxes):
    """The vectors of some boxes of one picture."""
    squares = torch.from_numpy(fixed_crops(picture.load(), Crops(name="whole"), TinyBackbone.side))
    maps = TinyBackbone().regions(squares).detach().transpose(1, 2).reshape(1, 6, 4, 4)
    return roi_align(maps, torch.from_numpy(boxes[None]))[0].numpy()


def rows_of(stored):
    return stored.features[np.arange(len(stored.features))]
