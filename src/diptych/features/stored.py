"""Reading a frozen backbone's features of a corpus from the store, which is given first what it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from diptych.data.corpus import Corpus, Floats
from diptych.data.reader import FeatureReader, ImageReader
from diptych.features.backbone import Backbone, grid_of
from diptych.features.choices import Dtype
from diptych.features.extract import Stored, extract
from diptych.features.readers import ImageInput, RegionReader, pictures_of, proposed_boxes
from diptych.features.regions import grid_boxes
from diptych.features.store import FeatureStoreSpec, free_folder
from diptych.progress import ProgressCallback


def stored_reader(
    corpus: Corpus,
    backbone: Backbone,
    wanted: ImageInput,
    stores: Path,
    *,
    workers: int,
    device: torch.device,
    progress: ProgressCallback | None = None,
) -> tuple[ImageReader, Stored]:
    """The reader of a corpus' features in the store of this backbone below a folder, and what is in it."""
    making = making_of(backbone, wanted)
    folder = free_folder(stores, making)
    stored = extract(pictures_of(corpus), backbone, making, folder, workers=workers, device=device, progress=progress)
    reader = FeatureReader(stored.features, stored.readable, stored.skipped)
    return (RegionReader(reader, corpus.image_ids) if _of_map(wanted) else reader), stored


def has_store(backbone: Backbone, wanted: ImageInput, stores: Path) -> bool:
    """Whether features of this backbone, with these weights, crops and regions, are stored below a folder."""
    return (free_folder(stores, making_of(backbone, wanted)) / "about.json").exists()


def making_of(backbone: Backbone, wanted: ImageInput) -> FeatureStoreSpec:
    """How what a tower reads is stored; regions of a map, which are many, in half the space."""
    assert wanted.crops is not None, "a backbone reads crops"
    dtype: Dtype = "float16" if _of_map(wanted) else "float32"
    return FeatureStoreSpec.of(backbone.name, backbone, wanted.crops, regions=wanted.regions, dtype=dtype)


def region_boxes(corpus: Corpus, wanted: ImageInput, backbone: Backbone | None) -> Floats | None:
    """Where the regions that a model reads lie: (images, regions, 4), or none where nobody knows.

    A box is left, top, right, bottom, relative to the whole photo; zeros are no region, or one at no known place.
    Proposals, being found anew, take a fraction of a second a photo.
    """
    if wanted.kind == "features":
        return None if corpus.region_boxes is None else corpus.region_boxes[np.arange(len(corpus.image_ids))]
    if wanted.regions is None or wanted.crops is None or backbone is None or not _of_map(wanted):
        return None
    if wanted.regions.proposed:
        return proposed_boxes(pictures_of(corpus), wanted)
    cells, _ = grid_of(wanted.crops, backbone)
    return np.repeat(grid_boxes(cells, wanted.crops, wanted.shape[-1])[None], len(corpus.image_ids), axis=0)


def _of_map(wanted: ImageInput) -> bool:
    return wanted.regions is not None and wanted.regions.of_map
