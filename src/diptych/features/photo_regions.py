"""The regions of a corpus' photos by number: the proposed ones, followed by those annotated in the data."""

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

# The number of annotated boxes per photo is rounded up to a multiple of this, so that one more box does not always
# need a new store.
ANNOTATED_STEP = 8


@dataclass(eq=False)
class PhotoRegions:
    """The proposed and annotated regions of photos; region `r` of photo `i` has the number i * per_photo + r.

    `boxes` are the proposed ones and `annotated` those of the data, (photos, regions, 4) each; zeros stand for no
    region. `photos` are the photos that could be read, and `skipped` holds the reasons why the others could not.
    """

    boxes: Floats
    annotated: Floats
    photos: Integers
    skipped: dict[int, str]
    _proposed_vectors: Features
    _annotated_vectors: Features
    _row: Integers  # of each photo in both; -1 if it could not be read

    @property
    def per_photo(self) -> int:
        """The number of regions per photo, including empty ones."""
        return int(self.boxes.shape[1] + self.annotated.shape[1])

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the vectors of the readable regions by number, (regions, size), and which of them are readable."""
        photos, regions = np.divmod(images, self.per_photo)
        readable = self._row[photos] >= 0
        rows, regions = self._row[photos[readable]], regions[readable]
        first_annotated = self.boxes.shape[1]
        proposed = regions < first_annotated
        values = np.empty((len(rows), self._proposed_vectors.shape[1]), np.float32)
        values[proposed] = self._proposed_vectors.read_regions(rows[proposed], regions[proposed])
        values[~proposed] = self._annotated_vectors.read_regions(
            rows[~proposed], regions[~proposed] - self.boxes.shape[1]
        )
        return values, readable


def photo_regions(
    corpus: Corpus,
    annotated: Floats,
    backbone: Backbone,
    image_input: ImageInput,
    stores: Path,
    *,
    workers: int,
    device: torch.device,
    progress: ProgressCallback | None = None,
) -> PhotoRegions:
    """The regions of a corpus' photos, with `annotated` boxes (photos, boxes, 4).

    The vectors come from two feature stores below `stores`, after those that they lack have been computed.
    """
    pictures = pictures_of(corpus)
    count = -(-annotated.shape[1] // ANNOTATED_STEP) * ANNOTATED_STEP
    padded = np.zeros((len(annotated), count, 4), np.float32)
    padded[:, : annotated.shape[1]] = annotated
    proposed_spec = spec_for(backbone, image_input)
    annotated_regions = Regions(method="annotated", count=count)
    annotated_spec = proposed_spec.model_copy(update={"regions": annotated_regions, "forest": None})

    def stored_features(spec: FeatureStoreSpec, boxes: Floats | None) -> StoredFeatures:
        folder = folder_for_weights(stores, spec)
        return extract(pictures, backbone, spec, folder, workers=workers, device=device, progress=progress, boxes=boxes)

    from_proposals, from_annotations = stored_features(proposed_spec, None), stored_features(annotated_spec, padded)
    assert from_proposals.boxes is not None
    photos = np.intersect1d(from_proposals.readable, from_annotations.readable)
    row = np.full(len(pictures), -1, np.int64)
    row[photos] = np.arange(len(photos))
    boxes = np.zeros((len(pictures), *from_proposals.boxes.shape), np.float32)
    boxes[from_proposals.readable] = from_proposals.boxes[np.arange(len(from_proposals.readable))]
    proposed_vectors, annotated_vectors = (
        stored.features.take(np.searchsorted(stored.readable, photos)) for stored in (from_proposals, from_annotations)
    )
    skipped = {**from_proposals.skipped, **from_annotations.skipped}
    return PhotoRegions(boxes, padded, photos, skipped, proposed_vectors, annotated_vectors, row)
