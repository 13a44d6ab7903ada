"""The regions of a corpus' photos by number: proposed ones, and behind them those that came with the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Features, Floats, Integers
from diptych.data.image_reader import Draw
from diptych.features.backbone import Backbone
from diptych.features.extract import StoredFeatures, extract
from diptych.features.image_input import ImageInput, pictures_of
from diptych.features.regions import Regions
from diptych.features.store import FeatureStoreSpec, folder_for_weights, spec_for
from diptych.progress import ProgressCallback

ROOM = 8  # annotated boxes a photo are stored in rows of a multiple of this, so that one more needs no other store


@dataclass(eq=False)
class PhotoRegions:
    """The proposed and annotated regions of some photos; region `p` of photo `i` has the number i * places + p.

    `boxes` holds the proposed ones, `annotated` those of the data, (photos, regions, 4) each, zeros where there is
    none. `photos` are the photos that could be read; `skipped` says why the others could not.
    """

    boxes: Floats
    annotated: Floats
    photos: Integers
    skipped: dict[int, str]
    _proposed_vectors: Features
    _annotated_vectors: Features
    _row: Integers  # of each photo in both

    @property
    def places(self) -> int:
        """How many regions a photo has room for."""
        return int(self.boxes.shape[1] + self.annotated.shape[1])

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The vectors of regions by number, (regions, size); those of a photo that cannot be read are left out."""
        photos, places = np.divmod(images, self.places)
        readable = self._row[photos] >= 0
        rows, places = self._row[photos[readable]], places[readable]
        proposed = places < self.boxes.shape[1]
        values = np.empty((len(rows), self._proposed_vectors.shape[1]), np.float32)
        values[proposed] = self._proposed_vectors.read_regions(rows[proposed], places[proposed])
        values[~proposed] = self._annotated_vectors.read_regions(
            rows[~proposed], places[~proposed] - self.boxes.shape[1]
        )
        return values, readable


def photo_regions(
    corpus: Corpus,
    annotated: Floats,
    backbone: Backbone,
    wanted: ImageInput,
    stores: Path,
    *,
    workers: int,
    device: torch.device,
    progress: ProgressCallback | None = None,
) -> PhotoRegions:
    """The regions of a corpus' photos, and `annotated` boxes (photos, boxes, 4); stores get what they lack."""
    making = spec_for(backbone, wanted)
    room = -(-annotated.shape[1] // ROOM) * ROOM
    known = np.zeros((len(annotated), room, 4), np.float32)
    known[:, : annotated.shape[1]] = annotated
    given = making.model_copy(update={"regions": Regions(method="annotated", count=room), "forest": None})
    pictures = pictures_of(corpus)

    def stored(made: FeatureStoreSpec, boxes: Floats | None) -> StoredFeatures:
        folder = folder_for_weights(stores, made)
        return extract(pictures, backbone, made, folder, workers=workers, device=device, progress=progress, boxes=boxes)

    proposed, told = stored(making, None), stored(given, known)
    assert proposed.boxes is not None
    both = np.intersect1d(proposed.readable, told.readable)
    row = np.full(len(pictures), -1, np.int64)
    row[both] = np.arange(len(both))
    boxes = np.zeros((len(pictures), *proposed.boxes.shape), np.float32)
    boxes[proposed.readable] = proposed.boxes[np.arange(len(proposed.readable))]
    vectors = [some.features.take(np.searchsorted(some.readable, both)) for some in (proposed, told)]
    return PhotoRegions(boxes, known, both, {**proposed.skipped, **told.skipped}, vectors[0], vectors[1], row)
