"""Every reader of images, and `image_reader`, which chooses the one that a model needs.

| Model input | Reader |
|---|---|
| `features`: one vector per image that came with the corpus | `FeatureReader` |
| `features`: several vectors per image that came with the corpus | `RegionReader` |
| `pixels` | `PixelReader` |
| `crops`, random | `CropReader` |
| `crops`, in the feature store of a frozen backbone | `FeatureReader`, or `RegionReader` for regions of its map |
| `crops`, regions proposed and pooled on the fly | `ProposalReader` |
| `crops`, otherwise | `CropReader` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.data.corpus import Corpus, Features, Floats, Integers, Picture
from diptych.data.image_reader import Draw
from diptych.data.images import square_pixels
from diptych.errors import DataError, ImageError
from diptych.features import proposals
from diptych.features.backbone import Backbone
from diptych.features.choices import RandomCrop
from diptych.features.crops import Crops, fixed_crops, load_for_crops, random_crop, random_window, too_small
from diptych.features.extract import StoredFeatures, extract
from diptych.features.image_input import ImageInput, pictures_of
from diptych.features.roi_align import pool_cells
from diptych.features.store import FeatureStoreSpec, folder_for_weights, has_store, spec_for
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks

PIXEL_CACHE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class StoreOptions:
    """The folder of a frozen backbone's feature stores, and how features that a store lacks are computed.

    With `create`, a store that does not exist is created; by default it is not used. Several `ranks` compute a share
    each, so all of them must ask for the same readers in the same order.
    """

    folder: Path
    device: torch.device
    workers: int = 2
    progress: ProgressCallback | None = None
    create: bool = False
    ranks: Ranks = ALONE


def image_reader(
    images: Corpus | Sequence[Picture],
    image_input: ImageInput,
    backbone: Backbone | None = None,
    *,
    store: StoreOptions | None = None,
    random: RandomCrop | None = None,
    keep_pixels: bool = True,
) -> InputReader:
    """The reader of these images for a model with this input; raises DataError if they do not fit the model.

    `backbone` is the model's, if any; proposed regions and the feature store need it. With `store`, features come from
    the store of this backbone, after those that it lacks have been computed. With `random`, one random crop is drawn
    per image and read, and the store is not used. `keep_pixels` keeps small images in memory, if all of them fit.
    """
    if image_input.kind == "features":
        return _corpus_feature_reader(images, image_input)
    pictures = pictures_of(images) if isinstance(images, Corpus) else images
    crops, regions, side = image_input.crops, image_input.regions, image_input.shape[-1]
    if crops is None:
        return PixelReader(pictures, side, keep=keep_pixels)
    if random is not None and crops.name == "patches":
        raise DataError("the model reads whole photos as patches, of which there are no random crops; leave crops out")
    if random is not None:
        return CropReader(pictures, crops, side, random)
    if store is not None and backbone is not None:
        spec = spec_for(backbone, image_input)
        if store.create or has_store(store.folder, spec):
            return _store_reader(images, image_input, backbone, spec, store)
    if regions is not None and regions.are_boxes and backbone is not None:
        return ProposalReader(pictures, image_input, backbone)
    return CropReader(pictures, crops, side)


class InputReader(ABC):
    """Reads a model's image input by image number; safe to call from several threads.

    Whatever was found out about images while they were read is in the attributes:

    - `skipped`: images that could not be read, with the reason. They stay skipped, so that a batch does not depend on
      luck.
    - `enlarged`: images that are smaller than the crop and were enlarged, with width and height.
    - `empty`: images that could be read but have no region; they are also in `skipped`.
    """

    def __init__(self) -> None:
        self.skipped: dict[int, str] = {}
        self.enlarged: dict[int, tuple[int, int]] = {}
        self.empty: set[int] = set()

    @property
    def boxes(self) -> Floats | None:
        """The boxes of the regions, (images, regions, 4), relative to the image; None if they are unknown.

        Zeros stand for no region, and for an image whose regions have not been proposed yet.
        """
        return None

    @abstractmethod
    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the values of the readable images, in order, and a mask of which of `images` those are."""


class FeatureReader(InputReader):
    """Reads stored features.

    `features` and `boxes` have one row per image or, with `readable`, one row for each of the images listed there; all
    others must be in `skipped`.
    """

    def __init__(
        self,
        features: Features,
        readable: Integers | None = None,
        skipped: dict[int, str] | None = None,
        *,
        enlarged: dict[int, tuple[int, int]] | None = None,
        boxes: Features | None = None,
    ) -> None:
        super().__init__()
        self.skipped |= skipped or {}
        self.enlarged |= enlarged or {}
        self._features = features
        self._boxes_by_row = boxes
        self._row_of = None  # -1 for an image without features
        if readable is not None:
            self._row_of = np.full(len(readable) + len(self.skipped), -1)
            self._row_of[readable] = np.arange(len(readable))

    @cached_property
    def boxes(self) -> Floats | None:
        """The stored boxes, (images, regions, 4); zeros for an image without features."""
        if self._boxes_by_row is None:
            return None
        rows = self._boxes_by_row[np.arange(len(self._boxes_by_row))]
        if self._row_of is None:
            return rows
        boxes = np.zeros((len(self._row_of), *rows.shape[1:]), np.float32)
        boxes[self._row_of >= 0] = rows[self._row_of[self._row_of >= 0]]
        return boxes

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the features of the readable images, and which those are."""
        rows, readable = self._rows(images)
        return self._features[rows], readable

    def _rows(self, images: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """The rows of the readable images, and which those are."""
        rows = images if self._row_of is None else self._row_of[images]
        readable: NDArray[np.bool_] = rows >= 0
        return rows[readable], readable


class RegionReader(FeatureReader):
    """Reads stored regions, several vectors per image; an image whose vectors are all zeros is skipped as empty."""

    def __init__(
        self,
        features: Features,
        image_ids: Sequence[str],
        readable: Integers | None = None,
        skipped: dict[int, str] | None = None,
        *,
        enlarged: dict[int, tuple[int, int]] | None = None,
        boxes: Features | None = None,
    ) -> None:
        super().__init__(features, readable, skipped, enlarged=enlarged, boxes=boxes)
        self._ids = image_ids

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the regions of the images that have some, and which those are."""
        values, readable = super().read(images, draw)
        # The first region is nearly always present; looking at all of them takes time.
        present: NDArray[np.bool_] = np.asarray(values[:, 0].any(1))
        if not present.all():
            present[~present] = values[~present].any((1, 2))
        if present.all():
            return values, readable
        for image in images[readable][~present].tolist():
            self.empty.add(image)
            self.skipped[image] = (
                f"{self._ids[image]}: has no regions, all of its rows are zeros; compute them again, or leave it out"
            )
        readable[readable] = present
        return values[present], readable


class PixelReader(InputReader):
    """Reads whole images as squares of pixels, and keeps them in memory if all of them fit, unless `keep` is False."""

    def __init__(self, pictures: Sequence[Picture], side: int, *, keep: bool = True) -> None:
        super().__init__()
        self._pictures = pictures
        self._side = side
        fits = keep and len(pictures) * 3 * side * side <= PIXEL_CACHE_BYTES
        self._cache = np.empty((len(pictures) if fits else 0, 3, side, side), np.uint8)
        self._is_cached = np.zeros(len(self._cache), bool)

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the pixels of the readable images, (readable, 3, side, side), and which those are."""
        readable = np.ones(len(images), bool)
        out = np.empty((len(images), 3, self._side, self._side), np.uint8)
        for row, image in enumerate(images):
            if image in self.skipped:
                readable[row] = False
            elif len(self._is_cached) and self._is_cached[image]:
                out[row] = self._cache[image]
            else:
                readable[row] = self._decode(int(image), out[row])
        return (out if readable.all() else out[readable]), readable

    def _decode(self, image: int, out: NDArray[np.uint8]) -> bool:
        try:
            out[:] = square_pixels(self._pictures[image], self._side)
        except ImageError as reason:
            self.skipped[image] = str(reason)
            return False
        if len(self._is_cached):
            self._cache[image] = out
            self._is_cached[image] = True
        return True


class CropReader(InputReader):
    """Decodes each image every time and reads its crops: (images, crops, 3, side, side) bytes.

    With `random`, it is one random crop, a pure function of the image and the draw.
    """

    def __init__(self, pictures: Sequence[Picture], crops: Crops, side: int, random: RandomCrop | None = None) -> None:
        super().__init__()
        self._pictures, self._crops, self._side, self._random = pictures, crops, side, random

    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the crops of the readable images, and which those are."""
        count = 1 if self._random else self._crops.count
        rows = np.empty((len(images), count, 3, self._side, self._side), np.uint8)
        readable = np.ones(len(images), bool)
        for row, image in enumerate(images.tolist()):
            try:
                if image in self.skipped:
                    readable[row] = False
                else:
                    rows[row] = self._crop(image, draw)
            except ImageError as reason:
                self.skipped[image] = str(reason)
                readable[row] = False
        return (rows if readable.all() else rows[readable]), readable

    def _crop(self, image: int, draw: Draw) -> NDArray[np.uint8]:
        picture = self._pictures[image]
        # A random part of the original photo needs all of its pixels; everything else is taken from a resized photo.
        full_size = (self._random, self._crops.resize) == ("RC", "short")
        photo = picture.load() if full_size else load_for_crops(picture, self._crops, self._side)
        if too_small(photo.size, self._side):
            self.enlarged[image] = photo.size
        if self._random is None:
            return fixed_crops(photo, self._crops, self._side)
        if self._random == "one":
            return fixed_crops(photo, self._crops, self._side)[[drawn_crop(self._crops.count, image, draw)]]
        draw_crop = random_crop if self._random == "RC" else random_window
        return draw_crop(photo, self._crops.resize, self._side, _random(image, draw))[None]


class ProposalReader(InputReader):
    """Proposes the regions of each image every time, and pools them from a frozen backbone's map.

    Reads (images, regions, channels) floats, as they would be stored. `boxes` is filled while images are read.
    """

    def __init__(self, pictures: Sequence[Picture], image_input: ImageInput, backbone: Backbone) -> None:
        super().__init__()
        assert image_input.crops is not None
        assert image_input.regions is not None
        self._pictures, self._crops, self._side = pictures, image_input.crops, image_input.shape[-1]
        self._count, self._backbone = image_input.regions.count, backbone
        self._propose = proposals.proposer(image_input.regions)
        self._boxes: Floats = np.zeros((len(pictures), self._count, 4), np.float32)

    @property
    def boxes(self) -> Floats | None:
        """The boxes of the images read so far, (images, regions, 4)."""
        return self._boxes

    @torch.inference_mode()
    def read(self, images: Integers, draw: Draw = ()) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the regions of the readable images, and which those are."""
        crops = [np.empty((0, 3, self._side, self._side), np.uint8)]
        readable = np.zeros(len(images), bool)
        for row, image in enumerate(images.tolist()):
            try:
                if image not in self.skipped:
                    photo = load_for_crops(self._pictures[image], self._crops, self._side)
                    crops.append(fixed_crops(photo, self._crops, self._side))
                    self._boxes[image] = self._propose(photo)
                    readable[row] = True
            except ImageError as reason:
                self.skipped[image] = str(reason)
        return self._pool(np.concatenate(crops), self._boxes[images[readable]]), readable

    def _pool(self, crops: NDArray[np.uint8], boxes: Floats) -> Floats:
        if not len(crops):
            return np.empty((0, self._count, self._backbone.grid[1]), np.float32)
        device = next(self._backbone.parameters()).device
        cells = self._backbone.regions(torch.from_numpy(crops).to(device))
        return np.asarray(pool_cells(cells, torch.from_numpy(boxes).to(device)).cpu().numpy())


def drawn_crop(crops: int, image: int, draw: Draw) -> int:
    """Which of an image's crops a draw gives, a pure function of the image and the draw."""
    return int(_random(image, draw).integers(crops))


def _random(image: int, draw: Draw) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([*draw, image])))


def _corpus_feature_reader(images: Corpus | Sequence[Picture], image_input: ImageInput) -> FeatureReader:
    """The reader of the features that came with a corpus."""
    if not isinstance(images, Corpus):
        raise DataError("the run reads features that came with its data; ask with the id of an image of that data")
    features = images.features
    if features is None:
        raise DataError(f"{images.name}: has pictures, and the run reads features that came with its data")
    if features.shape != image_input.shape:
        raise DataError(f"{images.name}: features of shape {features.shape}, the model reads {image_input.shape}")
    if len(image_input.shape) == 2:
        return RegionReader(features, images.image_ids, boxes=images.region_boxes)
    return FeatureReader(features)


def _store_reader(
    images: Corpus | Sequence[Picture],
    image_input: ImageInput,
    backbone: Backbone,
    spec: FeatureStoreSpec,
    store: StoreOptions,
) -> FeatureReader:
    """The reader of a backbone's feature store, after the features that it lacks have been computed."""
    pictures = pictures_of(images) if isinstance(images, Corpus) else images
    stored = extracted_features(pictures, backbone, spec, store)
    features, readable, skipped, enlarged = stored.features, stored.readable, stored.skipped, stored.enlarged
    if not image_input.reads_map:
        return FeatureReader(features, readable, skipped, enlarged=enlarged)
    ids = images.image_ids if isinstance(images, Corpus) else [f"image {number}" for number in range(len(pictures))]
    return RegionReader(features, ids, readable, skipped, enlarged=enlarged, boxes=stored.boxes)


def extracted_features(
    pictures: Sequence[Picture], backbone: Backbone, spec: FeatureStoreSpec, store: StoreOptions
) -> StoredFeatures:
    """The features of pictures from their store, after those that it lacks have been computed."""
    return extract(
        pictures,
        backbone,
        spec,
        folder_for_weights(store.folder, spec),
        workers=store.workers,
        device=store.device,
        progress=store.progress,
        ranks=store.ranks,
    )
