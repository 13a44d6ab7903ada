"""Reading a frozen backbone's features of a corpus from the store, which is given first what it lacks."""

from __future__ import annotations

from pathlib import Path

import torch

from diptych.data.corpus import Corpus
from diptych.data.reader import FeatureReader
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops
from diptych.features.extract import Stored, Watch, extract
from diptych.features.reader import pictures_of
from diptych.features.store import Making, free_folder


def stored_reader(
    corpus: Corpus,
    backbone: Backbone,
    crops: Crops,
    stores: Path,
    *,
    workers: int,
    device: torch.device,
    watch: Watch | None = None,
) -> tuple[FeatureReader, Stored]:
    """The reader of a corpus' features in the store of this backbone below a folder, and what is in it."""
    making = Making.of(backbone.name, backbone, crops)
    folder = free_folder(stores, making)
    stored = extract(pictures_of(corpus), backbone, making, folder, workers=workers, device=device, watch=watch)
    return FeatureReader(stored.features, stored.readable, stored.skipped), stored


def has_store(backbone: Backbone, crops: Crops, stores: Path) -> bool:
    """Whether features of this backbone, with these weights and crops, are stored below a folder."""
    return (free_folder(stores, Making.of(backbone.name, backbone, crops)) / "about.json").exists()
