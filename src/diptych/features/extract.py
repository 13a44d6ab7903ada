"""Features of pictures: what a store lacks is decoded by threads, beside the network, and added to the store.

The features of an image depend on its pixels and the making alone: not on its neighbours, on the number of threads, or
on how often the work was interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diptych.data.corpus import Features, Floats, Integers, Picture
from diptych.data.images import PictureFile, decode
from diptych.data.sampling.pairs import read_ahead
from diptych.errors import DataError, ImageError
from diptych.features.backbone import Backbone, crop_side, grid_shape
from diptych.features.crops import fixed_crops, resized_side, too_small
from diptych.features.hashes import HashCache, pixels_hash, stamp
from diptych.features.region_boxes import AnnotatedBoxes, BoxSource, ProposedBoxes
from diptych.features.regions import check_whole_photo
from diptych.features.roi_align import pool_cells
from diptych.features.store import FeatureStore, FeatureStoreSpec, Part
from diptych.files import file_hash, locked_folder, remove_leftovers
from diptych.progress import ProgressCallback

# In one forward pass. On two cores 32 took a tenth less processor time than 16: threads wait for each other less often.
SQUARES_ON_CPU = 32
SQUARES_ELSEWHERE = 64

# A part ends with the first of these. The time is what a killed process loses at most; the rest bounds memory.
PART_SECONDS = 60.0
PART_ROWS = 16384
PART_BYTES = 128 * 2**20


@dataclass(frozen=True, eq=False)
class StoredFeatures:
    """The features of some pictures: row i belongs to picture `readable[i]`.

    `skipped` says why the others have none; `enlarged` names those smaller than the crop, with width and height.
    `boxes` are those of proposed regions, (regions, 4) an image, relative to the photo; zeros where there is no region.
    """

    features: Features
    readable: Integers
    skipped: dict[int, str]
    enlarged: dict[int, tuple[int, int]]
    computed: int
    boxes: Features | None = None


def extract(
    pictures: Sequence[Picture],
    backbone: Backbone,
    making: FeatureStoreSpec,
    folder: Path,
    *,
    workers: int,
    device: torch.device,
    progress: ProgressCallback | None = None,
    boxes: Floats | None = None,
) -> StoredFeatures:
    """The features of these pictures from the store in a folder, after computing those that it lacks.

    `boxes`, for regions that are `annotated`, are those of each picture, (pictures, regions, 4). The backbone is put
    into evaluation mode on the device. `progress` receives the number of pictures done and the total. Finished
    work is kept, even if an error ends the extraction.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a folder for the features")
    check_whole_photo(making.regions, making.crops)
    store = FeatureStore.open(folder, making) if (folder / "about.json").exists() else None
    seen = HashCache(folder / "seen.json")
    find: BoxSource = AnnotatedBoxes(boxes) if boxes is not None else ProposedBoxes()
    known = [seen.get(picture.path) if isinstance(picture, PictureFile) else None for picture in pictures]
    hashes = [None if digest is None else find.key(image, digest) for image, digest in enumerate(known)]
    wanted = [image for image, digest in enumerate(hashes) if digest is None or store is None or digest not in store]
    if store is not None and not wanted:
        return _gather(pictures, hashes, store, {}, 0)
    with locked_folder(folder, DataError):
        remove_leftovers(folder)
        network = _Network(backbone, making, device)
        find.prepare(making.regions)
        store = FeatureStore.make(folder, making, network.shape)
        work = _Extraction(pictures, hashes, network, store, seen, find)
        try:
            work.run(wanted, workers, progress)
        except BaseException:
            with suppress(OSError, DataError):  # the first error is the one to tell
                work.write()
            raise
        finally:
            seen.save()
    return _gather(pictures, hashes, store, work.reasons, work.computed)


@dataclass(frozen=True)
class _Look:
    """What a thread found out about one picture; without squares and reason it is in the store, or will be."""

    image: int
    digest: str | None = None  # None: there was nothing to hash
    squares: NDArray[np.uint8] | None = None  # (crops, 3, side, side)
    boxes: Floats | None = None  # (regions, 4), where they are proposed
    enlarged: tuple[int, int] | None = None
    reason: str | None = None
    lasting: bool = False  # the reason lies in the bytes


class _Reader:
    """Hashes pictures, and decodes and crops those that a store lacks; safe to call from several threads."""

    def __init__(
        self, pictures: Sequence[Picture], store: FeatureStore, seen: HashCache, side: int, find: BoxSource
    ) -> None:
        self._pictures = pictures
        self._find = find
        self._store = store
        self._seen = seen
        self._side = side
        self._claimed: set[str] = set()
        self._lock = threading.Lock()

    def read(self, images: Integers) -> list[_Look]:
        """Look at these images."""
        return [self._look(int(image)) for image in images]

    def _look(self, image: int) -> _Look:
        picture = self._pictures[image]
        if isinstance(picture, PictureFile):
            return self._look_at_file(image, picture.path)
        try:
            drawn = picture.load()
        except ImageError as reason:
            return _Look(image, reason=str(reason))
        digest = self._find.key(image, pixels_hash(drawn))
        return self._crop(image, digest, drawn) if self._claim(digest) else _Look(image, digest)

    def _look_at_file(self, image: int, path: Path) -> _Look:
        try:
            before = stamp(path)
            content = file_hash(path)
        except OSError:
            return _Look(image, reason=_why_unreadable(path))
        self._seen.add(path, before, content)
        digest = self._find.key(image, content)
        if not self._claim(digest):
            return _Look(image, digest)
        try:
            look = self._crop(image, digest, decode(path, resized_side(self._side)))
        except ImageError as reason:
            look = _Look(image, digest, reason=_without_path(path, reason), lasting=True)
        with suppress(OSError):
            if stamp(path) == before:
                return look
        return _Look(image, digest, reason="changed while it was read; run the command again")

    def _crop(self, image: int, digest: str, decoded: Image.Image) -> _Look:
        small = too_small(decoded.size, self._side)
        squares = fixed_crops(decoded, self._store.making.crops, self._side)
        boxes = self._find.boxes(image, decoded)
        return _Look(image, digest, squares, boxes, enlarged=decoded.size if small else None)

    def _claim(self, digest: str) -> bool:
        """Whether the caller is the first to ask for an image that the store lacks."""
        with self._lock:
            if digest in self._store or digest in self._claimed:
                return False
            self._claimed.add(digest)
            return True


class _Network:
    """The backbone on its device: squares of some images, and their boxes where they have some, to their rows."""

    def __init__(self, backbone: Backbone, making: FeatureStoreSpec, device: torch.device) -> None:
        crops = making.crops.count
        squares = SQUARES_ON_CPU if device.type == "cpu" else SQUARES_ELSEWHERE
        self.images = max(1, squares // crops)  # at once
        self.side = crop_side(making.crops, backbone)
        of_map = making.regions is not None and making.regions.from_map
        self._run: Callable[[Tensor], Tensor] = backbone.regions if of_map else backbone
        self._apart = making.regions is not None and not of_map
        self._device = device
        self._input = np.zeros((self.images, crops, 3, self.side, self.side), np.uint8)
        backbone.eval().to(device)
        self.shape: tuple[int, ...] = grid_shape(making.crops, backbone) if of_map else (backbone.size,)  # a row's
        if self._apart:
            self.shape = (crops, backbone.size)
        self._boxes: Floats | None = None
        if making.regions and making.regions.are_boxes:
            self.shape = (making.regions.count, self.shape[-1])
            self._boxes = np.zeros((self.images, making.regions.count, 4), np.float32)

    @torch.inference_mode()
    def rows(self, looks: Sequence[_Look]) -> Floats:
        """The features of at most `images` images, each the mean over its crops, or a row a crop.

        A network may sum in another order for another number of images, so it is always given the same number.
        """
        for place, look in enumerate(looks):
            assert look.squares is not None
            self._input[place] = look.squares
            if self._boxes is not None and look.boxes is not None:
                self._boxes[place] = look.boxes
        found = self._run(torch.from_numpy(self._input).flatten(0, 1).to(self._device))  # (images * crops, ...)
        if self._boxes is not None:
            found = pool_cells(found, torch.from_numpy(self._boxes).to(self._device))  # (images, regions, channels)
        found = found.view(*self._input.shape[:2], *found.shape[1:])  # (images, crops, ...)
        rows: Floats = (found if self._apart else found.mean(1)).float().cpu().numpy()
        return rows[: len(looks)]


class _Extraction:
    """One run over the pictures that a store may lack."""

    def __init__(
        self,
        pictures: Sequence[Picture],
        hashes: list[str | None],
        network: _Network,
        store: FeatureStore,
        seen: HashCache,
        find: BoxSource,
    ) -> None:
        self.reasons: dict[int | str, str] = {}  # by picture and by hash, of what may be readable another time
        self.computed = 0
        self._hashes = hashes
        self._network = network
        self._store = store
        self._seen = seen
        self._reader = _Reader(pictures, store, seen, network.side, find)
        self._start_part()

    def run(self, wanted: Sequence[int], workers: int, progress: ProgressCallback | None) -> None:
        """Read ahead, compute and write until every wanted picture is done with."""
        at_once = self._network.images
        chunk = max(1, at_once // 4)  # small, so that all threads work for the first pass
        chunks = np.split(np.array(wanted, np.int64), range(chunk, len(wanted), chunk))
        waiting: list[_Look] = []
        done = 0
        for looks in read_ahead(self._reader.read, chunks, workers):
            for look in looks:
                self._note(look)
            waiting += [look for look in looks if look.squares is not None]
            while len(waiting) >= at_once:
                self._compute(waiting[:at_once])
                waiting = waiting[at_once:]
            done += len(looks)
            if progress:
                progress(done - len(waiting), len(wanted))
        if waiting:
            self._compute(waiting)
        if progress:
            progress(len(wanted), len(wanted))
        self.write()

    def _note(self, look: _Look) -> None:
        self._hashes[look.image] = look.digest
        if look.reason is None:
            return
        if look.lasting and look.digest is not None:
            self._unreadable[look.digest] = look.reason
        else:
            self.reasons[look.image if look.digest is None else look.digest] = look.reason

    def _compute(self, looks: Sequence[_Look]) -> None:
        rows = self._network.rows(looks)
        # Images and rows in one step: an interrupt between two would part them.
        self._finished.append(([replace(look, squares=None) for look in looks], rows))
        finished = sum(len(rows) for _, rows in self._finished)
        most = max(1, min(PART_ROWS, PART_BYTES // rows[0].nbytes))
        if finished >= most or time.monotonic() - self._started >= PART_SECONDS:
            self.write()
            self._seen.save(force=False)

    def write(self) -> None:
        """Write what is finished as a part."""
        looks = [look for some, _ in self._finished for look in some]
        if looks or self._unreadable:
            rows = [np.empty((0, *self._store.shape), np.float32), *(rows for _, rows in self._finished)]
            part = Part(
                rows=[str(look.digest) for look in looks],
                enlarged={str(look.digest): look.enlarged for look in looks if look.enlarged is not None},
                unreadable=self._unreadable,
            )
            self._store.write(part, np.concatenate(rows), self._boxes_of(looks))
            self.computed += len(looks)
        self._start_part()

    def _boxes_of(self, looks: Sequence[_Look]) -> Floats | None:
        """The boxes that go with the rows: (images, regions, 4)."""
        regions = self._store.making.regions
        if regions is None or not regions.are_boxes:
            return None
        boxes = [look.boxes for look in looks if look.boxes is not None]
        return np.stack(boxes) if boxes else np.empty((0, self._store.shape[0], 4), np.float32)

    def _start_part(self) -> None:
        self._finished: list[tuple[list[_Look], Floats]] = []
        self._unreadable: dict[str, str] = {}
        self._started = time.monotonic()


def _gather(
    pictures: Sequence[Picture],
    hashes: Sequence[str | None],
    store: FeatureStore,
    reasons: dict[int | str, str],
    computed: int,
) -> StoredFeatures:
    """Each picture with its own row, by its hash."""
    found = {image: digest for image, digest in enumerate(hashes) if digest is not None and store.has_row(digest)}
    skipped = {}
    for image, digest in enumerate(hashes):
        if digest is None:
            skipped[image] = _with_path(pictures[image], reasons[image])
        elif image not in found:
            skipped[image] = _with_path(pictures[image], store.unreadable.get(digest) or reasons[digest])
    enlarged = {image: store.enlarged[digest] for image, digest in found.items() if digest in store.enlarged}
    rows = store.features(list(found.values()))
    boxes = store.boxes(list(found.values()))
    return StoredFeatures(rows, np.array(list(found), np.int64), skipped, enlarged, computed, boxes)


def _why_unreadable(path: Path) -> str:
    try:
        decode(path)
    except ImageError as reason:
        return _without_path(path, reason)
    return "could not be read at first; run the command again"


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _without_path(path: Path, reason: ImageError) -> str:
    """A reason without the name: equal bytes may lie under another one tomorrow."""
    return str(reason).removeprefix(_one_line(f"{path}: "))


def _with_path(picture: Picture, reason: str) -> str:
    return _one_line(f"{picture.path}: {reason}") if isinstance(picture, PictureFile) else reason
