"""Extracts the features of pictures into a store: threads load what the store lacks while the network computes.

The features of an image depend only on its pixels and the spec of the store, not on other images, the number of
threads or ranks, or interruptions.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Features, Floats, Integers, Picture
from diptych.data.images import picture_path
from diptych.data.read_ahead import read_ahead
from diptych.errors import DataError
from diptych.features.backbone import Backbone, crop_side, grid_shape
from diptych.features.hashes import HashCache
from diptych.features.picture_loader import LoadedPicture, PictureLoader, with_path
from diptych.features.region_boxes import AnnotatedBoxes, BoxSource, ProposedBoxes
from diptych.features.regions import check_whole_photo
from diptych.features.roi_align import pool_cells
from diptych.features.store import FeatureStore, FeatureStoreSpec, Part
from diptych.files import locked_folder, remove_leftovers
from diptych.machine import interrupt_event
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks

# Crops per forward pass. On two cores 32 took a tenth less CPU time than 16: threads wait for each other less often.
CROPS_ON_CPU = 32
CROPS_ON_GPU = 64

# A part is finished by the first of these limits. The time is the most that a killed process loses; the others bound
# the memory.
PART_SECONDS = 60.0
PART_ROWS = 16384
PART_BYTES = 128 * 2**20


@dataclass(frozen=True, eq=False)
class StoredFeatures:
    """The features of some pictures: row i belongs to picture `readable[i]`.

    `skipped` holds the reasons why the other pictures have none, and `enlarged` the width and height of pictures that
    are smaller than the crop. `boxes` holds the boxes of regions, (regions, 4) per row, relative to the photo; zeros
    stand for no region. `computed` counts the rows that were not in the store before.
    """

    features: Features
    readable: Integers
    skipped: dict[int, str]
    enlarged: dict[int, tuple[int, int]]
    computed: int
    boxes: Features | None = None


def extract(  # noqa: PLR0913 (options, by keyword only)
    pictures: Sequence[Picture],
    backbone: Backbone,
    spec: FeatureStoreSpec,
    folder: Path,
    *,
    workers: int,
    device: torch.device,
    progress: ProgressCallback | None = None,
    boxes: Floats | None = None,
    ranks: Ranks = ALONE,
) -> StoredFeatures:
    """The features of these pictures from the store in a folder, after computing those that it lacks.

    `boxes` are required if the regions are `annotated`: (pictures, regions, 4). The backbone is put into evaluation
    mode on the device. `progress` receives the number of pictures done and the total. Finished features are kept even
    if the extraction fails or is interrupted. Several `ranks` compute a share each, and leave the store of one process,
    byte for byte.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a folder for the features")
    check_whole_photo(spec.regions, spec.crops)
    store = _open(folder, spec)
    cache = HashCache(folder / "seen.json", ranks.rank)
    box_source: BoxSource = AnnotatedBoxes(boxes) if boxes is not None else ProposedBoxes()
    keys = _known_keys(pictures, cache, box_source, ranks)
    missing = ranks.of_first(lambda: [image for image, key in enumerate(keys) if _lacks(store, key)])
    if not ranks.of_first(lambda: bool(missing) or store is None):
        store = ranks.first_alone(lambda: _settled(store, folder, spec, keys, ranks))
        return _gather(pictures, keys, store, {}, 0)
    with ExitStack() as stack:

        def begin() -> FeatureStore:
            if ranks.is_first:
                stack.enter_context(locked_folder(folder, DataError))
                remove_leftovers(folder)
            return FeatureStore.open_or_create(folder, spec, network.shape)

        network = _Network(backbone, spec, device)
        box_source.prepare(spec.regions)
        store = ranks.first_alone(begin)
        before = store.images
        loader = PictureLoader(pictures, store, cache, network.side, box_source)
        extraction = _Extraction(loader, keys, network, store, cache, ranks)
        try:
            extraction.run(missing, workers, progress)
        except BaseException:
            with suppress(OSError, DataError):  # the first error is the one to report
                extraction.write()
            raise
        finally:
            cache.save()
        keys, reasons = extraction.of_all_ranks(missing)
        store = ranks.first_alone(lambda: _finished(folder, spec, keys, cache, ranks))
    return _gather(pictures, keys, store, reasons, store.images - before)


def _open(folder: Path, spec: FeatureStoreSpec) -> FeatureStore | None:
    return FeatureStore.open(folder, spec) if (folder / "about.json").exists() else None


def _lacks(store: FeatureStore | None, key: str | None) -> bool:
    return key is None or store is None or key not in store


def _known_keys(pictures: Sequence[Picture], cache: HashCache, box_source: BoxSource, ranks: Ranks) -> list[str | None]:
    """The keys of pictures whose hashes are known; each rank looks at a share of the files."""
    own = ranks.share(len(pictures))
    hashes = [None if path is None else cache.get(path) for path in map(picture_path, pictures[own])]
    keys = [None if digest is None else box_source.key(own.start + row, digest) for row, digest in enumerate(hashes)]
    return [key for part in ranks.gather_values(keys) for key in part]


def _settled(
    store: FeatureStore | None, folder: Path, spec: FeatureStoreSpec, keys: Sequence[str | None], ranks: Ranks
) -> FeatureStore:
    """The complete store, settled if the process that has completed it was killed before it could do that."""
    if store is None or not store.is_settled:
        store = FeatureStore.open(folder, spec)
        if ranks.is_first:
            with suppress(_BusyError), locked_folder(folder, _BusyError):  # otherwise another process is adding to it
                store = FeatureStore.open(folder, spec)
                store.settle(filter(None, keys), _rows_per_part(store))
    return store


def _finished(
    folder: Path, spec: FeatureStoreSpec, keys: Sequence[str | None], cache: HashCache, ranks: Ranks
) -> FeatureStore:
    """The store after an extraction: the first rank settles what all of them have computed."""
    store = FeatureStore.open(folder, spec)
    if ranks.is_first:
        store.settle(filter(None, keys), _rows_per_part(store))
        cache.join()
    return store


def _rows_per_part(store: FeatureStore) -> int:
    return max(1, min(PART_ROWS, PART_BYTES // (4 * math.prod(store.shape))))


class _BusyError(DataError):
    """Another process has locked the store."""


class _Network:
    """The backbone on its device: computes the rows of a fixed number of pictures at once."""

    def __init__(self, backbone: Backbone, spec: FeatureStoreSpec, device: torch.device) -> None:
        crops, regions = spec.crops.count, spec.regions
        from_map = regions is not None and regions.from_map
        self.batch = max(1, (CROPS_ON_CPU if device.type == "cpu" else CROPS_ON_GPU) // crops)  # pictures
        self.side = crop_side(spec.crops, backbone)
        self._run: Callable[[Tensor], Tensor] = backbone.regions if from_map else backbone
        self._row_per_crop = regions is not None and not from_map
        self._device = device
        self._crops = np.zeros((self.batch, crops, 3, self.side, self.side), np.uint8)
        self._boxes: Floats | None = None
        backbone.eval().to(device)
        self.shape: tuple[int, ...] = (backbone.size,)  # of a picture's row
        if self._row_per_crop:
            self.shape = (crops, backbone.size)
        elif from_map:
            self.shape = grid_shape(spec.crops, backbone)
        if regions is not None and regions.are_boxes:
            self.shape = (regions.count, self.shape[-1])
            self._boxes = np.zeros((self.batch, regions.count, 4), np.float32)

    @torch.inference_mode()
    def rows(self, pictures: Sequence[LoadedPicture]) -> Floats:
        """The features of at most `batch` pictures: the mean over the crops, or one row per crop.

        The batch always has the same size, because the sums of a network may depend on it in their last bits.
        """
        for row, picture in enumerate(pictures):
            assert picture.crops is not None
            self._crops[row] = picture.crops
            if self._boxes is not None and picture.boxes is not None:
                self._boxes[row] = picture.boxes
        values = self._run(torch.from_numpy(self._crops).flatten(0, 1).to(self._device))  # (pictures * crops, ...)
        if self._boxes is not None:
            values = pool_cells(values, torch.from_numpy(self._boxes).to(self._device))  # (pictures, regions, channels)
        values = values.view(*self._crops.shape[:2], *values.shape[1:])  # (pictures, crops, ...)
        rows: Floats = (values if self._row_per_crop else values.mean(1)).float().cpu().numpy()
        return rows[: len(pictures)]


class _Extraction:
    """Loads pictures, computes their rows and writes them to a store, part by part."""

    def __init__(
        self,
        loader: PictureLoader,
        keys: list[str | None],
        network: _Network,
        store: FeatureStore,
        cache: HashCache,
        ranks: Ranks,
    ) -> None:
        # Why pictures were skipped that may be readable another time, by image or, if it is known, by key.
        self._reasons: dict[int | str, str] = {}
        self._loader = loader
        self._keys = keys
        self._network = network
        self._store = store
        self._cache = cache
        self._ranks = ranks
        self._waiting: list[LoadedPicture] = []
        self._start_part()

    def run(self, missing: Sequence[int], workers: int, progress: ProgressCallback | None) -> None:
        """Load, compute and write this rank's share of the missing images, in step with the others."""
        chunk = max(1, self._network.batch // 4)  # small, so that all threads work on the first batch
        own = np.array(missing, np.int64)[self._ranks.share(len(missing))]
        largest = -(-len(missing) // self._ranks.count)

        def report(done: int) -> None:
            if progress:
                progress(min(done * self._ranks.count, len(missing)), len(missing))

        steps = self._steps(np.split(own, range(chunk, len(own), chunk)), workers, report)
        with interrupt_event() as interrupted, closing(steps):
            self._ranks.in_step(steps, -(-largest // chunk), interrupted)
            self._ranks.together(lambda: self._finish(report))

    def _steps(
        self, chunks: Sequence[Integers], workers: int, report: Callable[[int], None]
    ) -> Generator[None, None, None]:
        """Load and compute the images, and stop after each chunk."""
        done, batch = 0, self._network.batch
        for loaded in read_ahead(self._loader.load, chunks, workers):
            for picture in loaded:
                self._record(picture)
            self._waiting += [picture for picture in loaded if picture.crops is not None]
            while len(self._waiting) >= batch:
                self._compute(self._waiting[:batch])
                self._waiting = self._waiting[batch:]
            done += len(loaded)
            report(done - len(self._waiting))
            yield

    def _finish(self, report: Callable[[int], None]) -> None:
        if self._waiting:
            self._compute(self._waiting)
            self._waiting = []
        report(sys.maxsize)
        self.write()

    def of_all_ranks(self, missing: Sequence[int]) -> tuple[list[str | None], dict[int | str, str]]:
        """The keys of all images, and the reasons why some were skipped, after all ranks have run."""
        own = missing[self._ranks.share(len(missing))]
        keys = self._ranks.gather_values([self._keys[image] for image in own])
        for image, key in zip(missing, (key for part in keys for key in part), strict=True):
            self._keys[image] = key
        reasons = self._ranks.gather_values(list(self._reasons.items()))
        return self._keys, dict(pair for part in reasons for pair in part)

    def _record(self, picture: LoadedPicture) -> None:
        self._keys[picture.image] = picture.key
        if picture.reason is None:
            return
        if picture.is_permanent and picture.key is not None:
            self._unreadable[picture.key] = picture.reason
        else:
            self._reasons[picture.image if picture.key is None else picture.key] = picture.reason

    def _compute(self, pictures: Sequence[LoadedPicture]) -> None:
        rows = self._network.rows(pictures)
        # One append for pictures and rows, so that an interrupt cannot separate them.
        self._finished.append(([replace(picture, crops=None) for picture in pictures], rows))
        finished = sum(len(rows) for _, rows in self._finished)
        limit = max(1, min(PART_ROWS, PART_BYTES // rows[0].nbytes))
        if finished >= limit or time.monotonic() - self._part_started >= PART_SECONDS:
            self.write()
            self._cache.save(force=False)

    def write(self) -> None:
        """Write the finished rows to the store as one new part."""
        pictures = [picture for batch, _ in self._finished for picture in batch]
        if pictures or self._unreadable:
            rows = [np.empty((0, *self._store.shape), np.float32), *(rows for _, rows in self._finished)]
            part = Part(
                rows=[str(picture.key) for picture in pictures],
                enlarged={str(picture.key): picture.enlarged for picture in pictures if picture.enlarged is not None},
                unreadable=self._unreadable,
            )
            self._store.write_new(part, np.concatenate(rows), self._boxes_of(pictures), rank=self._ranks.rank)
        self._start_part()

    def _boxes_of(self, pictures: Sequence[LoadedPicture]) -> Floats | None:
        """The boxes of a part's rows, (pictures, regions, 4); None if the regions are not boxes."""
        regions = self._store.spec.regions
        if regions is None or not regions.are_boxes:
            return None
        boxes = [picture.boxes for picture in pictures if picture.boxes is not None]
        return np.stack(boxes) if boxes else np.empty((0, self._store.shape[0], 4), np.float32)

    def _start_part(self) -> None:
        self._finished: list[tuple[list[LoadedPicture], Floats]] = []
        self._unreadable: dict[str, str] = {}
        self._part_started = time.monotonic()


def _gather(
    pictures: Sequence[Picture],
    keys: Sequence[str | None],
    store: FeatureStore,
    reasons: dict[int | str, str],
    computed: int,
) -> StoredFeatures:
    """Find the row of each picture by its key."""
    found = {image: key for image, key in enumerate(keys) if key is not None and store.has_row(key)}
    skipped = {}
    for image, key in enumerate(keys):
        if key is None:
            skipped[image] = with_path(pictures[image], reasons[image])
        elif image not in found:
            skipped[image] = with_path(pictures[image], store.unreadable.get(key) or reasons[key])
    enlarged = {image: store.enlarged[key] for image, key in found.items() if key in store.enlarged}
    rows = list(found.values())
    readable = np.array(list(found), np.int64)
    return StoredFeatures(store.features(rows), readable, skipped, enlarged, computed, store.boxes(rows))
