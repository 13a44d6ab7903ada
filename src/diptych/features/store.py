"""The feature store: features on disk, computed once, found by the hash of their image, and read memory-mapped.

A store is a folder. `about.json` holds its spec. Rows are in immutable parts: `part-00000.npy`, and `part-00000.json`
with the key of each row, which is written last and makes the part valid. If the regions are boxes, these are next to
the rows in `part-00000.boxes.npy`.

Until an extraction has ended, its rows are in new parts, `new-RANK-00000.npy` and so on, which are read as well. At the
end they are settled: moved into the next parts, in the order of the images. So a finished store depends neither on
interruptions nor on how many ranks have computed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator

import diptych
from diptych.data.corpus import Features, Floats, Integers
from diptych.errors import DataError
from diptych.features.backbone import Backbone, weights_digest
from diptych.features.choices import Dtype
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.regions import Regions, forest_file
from diptych.files import atomic_write, file_hash, read_json, write_json
from diptych.settings import Settings, first_error

FORMAT = 1
DECODER = f"Pillow {PIL.__version__}"

Kind = TypeVar("Kind", bound=Settings)


class FeatureStoreSpec(Settings):
    """How features are computed; features of equal specs can be compared."""

    backbone: str
    weights: str  # their digest
    crops: Crops = Crops()
    regions: Regions | None = None  # None: one vector per image
    forest: str | None = None  # the digest of the regions' structured forest, if any
    dtype: Dtype = "float32"

    @field_validator("regions", mode="before")
    @classmethod
    def _read_version_0_1(cls, regions: Any) -> Any:
        """Accept the spec of version 0.1.0, which has a boolean: whether the regions are a grid."""
        return (Regions() if regions else None) if isinstance(regions, bool) else regions

    @classmethod
    def for_backbone(
        cls,
        backbone: Backbone,
        crops: Crops,
        *,
        regions: Regions | None = None,
        dtype: Dtype = "float32",
    ) -> FeatureStoreSpec:
        """The spec of a backbone's features, with the digests of its weights and of the regions' forest."""
        return cls(
            backbone=backbone.name,
            weights=weights_digest(backbone),
            crops=crops,
            regions=regions,
            forest=_forest_digest(regions),
            dtype=dtype,
        )


class About(Settings):
    """The content of `about.json`."""

    format: int
    version: str
    making: FeatureStoreSpec  # the name of the key on disk
    shape: tuple[int, ...]  # of a row: (size,), (regions, channels) or (crops, size)


class Part(Settings):
    """The content of a part's JSON: the key of each row, and what is known of some images, by key."""

    rows: list[str]
    enlarged: dict[str, tuple[int, int]] = Field(default={})  # smaller than the crop: width and height
    unreadable: dict[str, str] = Field(default={})
    decoder: str = DECODER  # another version may read images that this one cannot


def store_folder(root: Path, spec: FeatureStoreSpec) -> Path:
    """The default folder of a store, such as `features/lite0-1C`."""
    parts = [re.sub(r"[^\w.]+", "-", spec.backbone).strip("-."), spec.crops.name]
    parts += ["short"] * (spec.crops.resize == "short") + [str(spec.crops.side)] * (spec.crops.side is not None)
    parts += [spec.crops.interpolation] * (spec.crops.interpolation != "bilinear") + ["full"] * spec.crops.full_size
    parts += [str(spec.crops.patches)] * (spec.crops.patches is not None)
    parts += [spec.regions.label] if spec.regions else []
    parts += [spec.forest[:8]] if spec.forest else []
    parts += [spec.dtype] * (spec.dtype != "float32")
    return root / "-".join(parts)


def folder_for_weights(root: Path, spec: FeatureStoreSpec) -> Path:
    """`store_folder`, with the digest of the weights appended if the store there belongs to other weights."""
    folder = store_folder(root, spec)
    if not (folder / "about.json").exists() or _about(folder).making.weights == spec.weights:
        return folder
    return folder.with_name(f"{folder.name}-{spec.weights[:8]}")


def has_store(root: Path, spec: FeatureStoreSpec) -> bool:
    """Whether there is a store of these features below a folder."""
    return (folder_for_weights(root, spec) / "about.json").exists()


def spec_for(backbone: Backbone, image_input: ImageInput) -> FeatureStoreSpec:
    """How the crops that a model reads are stored; the many regions of a map take half the space, as float16."""
    assert image_input.crops is not None, "a backbone reads crops"
    dtype: Dtype = "float16" if image_input.reads_map else "float32"
    return FeatureStoreSpec.for_backbone(backbone, image_input.crops, regions=image_input.regions, dtype=dtype)


class FeatureStore:
    """Rows of features by key; parts are added, and never changed.

    A key is the hash of an image, combined with its boxes if these are annotated.
    """

    def __init__(self, folder: Path, about: About) -> None:
        self.folder = folder
        self.shape = about.shape
        self.spec = about.making
        self._has_boxes = self.spec.regions is not None and self.spec.regions.are_boxes
        self._read_parts()

    def _read_parts(self) -> None:
        """Find out which rows there are."""
        while True:
            new = sorted(self.folder.glob("new-*.json"))
            try:
                self._read_all(new)
            except DataError:
                if all(path.exists() for path in new):  # otherwise another process has just settled them
                    raise
            else:
                return

    def _read_all(self, new: Sequence[Path]) -> None:
        self.enlarged: dict[str, tuple[int, int]] = {}
        self.unreadable: dict[str, str] = {}
        self._arrays: list[NDArray[np.floating]] = [np.empty((0, *self.shape), self.spec.dtype)]
        self._boxes: list[NDArray[np.floating]] = [np.empty((0, self.shape[0], 4), np.float32)]
        self._row: dict[str, int] = {}
        self._count = 0
        self._next = dict.fromkeys(("part", "new"), 0)  # the numbers of the next parts
        for path in sorted(self.folder.glob("part-*.json")):
            self._add(path)
        self._settled, self._settled_unreadable = self._count, set(self.unreadable)
        for path in new:
            self._add(path)

    @classmethod
    def open(cls, folder: Path, spec: FeatureStoreSpec) -> FeatureStore:
        """Open the store in a folder; raises DataError if there is none, or if it has another spec."""
        about = _about(folder)
        if difference := _difference(about.making, spec):
            raise DataError(f"{folder}: {difference}; name another folder, or delete this one")
        return cls(folder, about)

    @classmethod
    def open_or_create(cls, folder: Path, spec: FeatureStoreSpec, shape: tuple[int, ...]) -> FeatureStore:
        """Open the store in a folder, or create it there; the caller must have locked the folder."""
        file = folder / "about.json"
        if not file.exists():
            if any(not path.name.startswith(".") for path in _entries(folder)):
                raise DataError(f"{folder}: {_no_store(folder)}")
            about = About(format=FORMAT, version=diptych.__version__, making=spec, shape=shape)
            write_json(file, about.model_dump(mode="json"))
        store = cls.open(folder, spec)
        if store.shape != shape:
            raise DataError(
                f"{file}: rows of shape {store.shape}, the backbone gives {shape}; delete {folder} and compute again"
            )
        return store

    def __len__(self) -> int:
        return self._count

    @property
    def images(self) -> int:
        """The number of different images that have features."""
        return len(self._row)

    @property
    def is_settled(self) -> bool:
        """Whether there are no new parts."""
        return self._next["new"] == 0

    def __contains__(self, key: str) -> bool:
        """Whether an image needs no further work: it has a row, or cannot be read."""
        return key in self._row or key in self.unreadable

    def has_row(self, key: str) -> bool:
        """Whether an image has features."""
        return key in self._row

    def features(self, keys: Sequence[str]) -> Features:
        """The features of these images, in this order; nothing is read yet."""
        return Features(self._arrays, self._rows_of(keys))

    def boxes(self, keys: Sequence[str]) -> Features | None:
        """The boxes of these images, (regions, 4) each, relative to the photo; None if the regions are not boxes."""
        return Features(self._boxes, self._rows_of(keys)) if self._has_boxes else None

    def _rows_of(self, keys: Sequence[str]) -> Integers:
        for key in keys:
            if key not in self._row:
                raise DataError(f"{self.folder}: no features of the image with hash {key[:12]}; compute them first")
        return np.array([self._row[key] for key in keys], np.int64)

    def write(self, part: Part, rows: NDArray[np.floating], boxes: Floats | None = None) -> None:
        """Add a part, completely or not at all; raises DataError if a value does not fit the dtype of the store."""
        self._write(f"part-{self._next['part']:05d}", part, rows, boxes)

    def write_new(self, part: Part, rows: NDArray[np.floating], boxes: Floats | None = None, *, rank: int = 0) -> None:
        """Add a new part, which is to be settled later, like `write`; several ranks may do so at the same time."""
        self._write(f"new-{rank}-{self._next['new']:05d}", part, rows, boxes)

    def settle(self, keys: Iterable[str], rows_per_part: int) -> None:
        """Move the rows of new parts into ordinary ones, in the order of these keys; others follow.

        The caller must have locked the folder. A process that is killed meanwhile loses nothing.
        """
        new = {path: _read(Part, path, _remedy(path)) for path in sorted(self.folder.glob("new-*.json"))}
        listed = dict.fromkeys([*keys, *(key for part in new.values() for key in part.rows)])
        moved = [key for key in listed if self._row.get(key, -1) >= self._settled]
        unreadable = {key: self.unreadable[key] for key in sorted(self.unreadable.keys() - self._settled_unreadable)}
        done: set[str] = set()
        for start in range(0, max(len(moved), min(1, len(unreadable))), rows_per_part):
            some = moved[start : start + rows_per_part]
            enlarged = {key: self.enlarged[key] for key in some if key in self.enlarged}
            everything, boxes = np.arange(len(some)), self.boxes(some)
            self.write(
                Part(rows=some, enlarged=enlarged, unreadable={} if start else unreadable),
                self.features(some)[everything],
                None if boxes is None else boxes[everything],
            )
            done.update(some)
            for path in [path for path, part in new.items() if done.issuperset(part.rows)]:
                _remove(path)
                del new[path]
        for path in self.folder.glob("new-*"):  # rows that are in other parts as well, or that have no keys
            path.unlink(missing_ok=True)
        self._read_parts()

    def _write(self, name: str, part: Part, rows: NDArray[np.floating], boxes: Floats | None) -> None:
        if rows.shape != (len(part.rows), *self.shape) or (boxes is not None) != self._has_boxes:
            raise ValueError(f"rows of shape {rows.shape} for {len(part.rows)} images")
        rows, path = self._as_stored(rows), self.folder / f"{name}.json"
        if boxes is not None:
            _save(_boxes_file(path), boxes)
        _save(path.with_suffix(".npy"), rows)
        write_json(path, part.model_dump(mode="json"))
        self._add(path)

    def _as_stored(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        with np.errstate(over="ignore"):
            stored = rows.astype(self.spec.dtype, copy=False)
        if np.isfinite(stored).all():
            return stored
        if np.isfinite(rows).all():
            raise DataError(f"{self.folder}: features above 65,504, the largest float16; use --dtype float32")
        raise DataError(f"{self.folder}: {self.spec.backbone} computes features that are not finite; check its weights")

    def _add(self, path: Path) -> None:
        remedy = _remedy(path)
        name = re.fullmatch(r"(part|new-\d+)-(\d+)", path.stem)
        if name is None:
            raise DataError(f"{path}: not a valid name of a part; move it away")
        part = _read(Part, path, remedy)
        rows = _mapped(path.with_suffix(".npy"), self.spec.dtype, (len(part.rows), *self.shape), remedy)
        if self._has_boxes:
            self._boxes.append(_mapped(_boxes_file(path), "float32", (len(rows), self.shape[0], 4), remedy))
        self._arrays.append(rows)
        for row, key in enumerate(part.rows):
            self._row.setdefault(key, self._count + row)
        self._count += len(rows)
        kind = name[1].partition("-")[0]
        self._next[kind] = max(self._next[kind], int(name[2]) + 1)
        self.enlarged |= part.enlarged
        if part.decoder == DECODER:
            self.unreadable |= part.unreadable


def _remedy(part: Path) -> str:
    return f"delete {part.with_suffix('')}.* and compute the features again"


def _remove(part: Path) -> None:
    for path in (part, part.with_suffix(".npy"), _boxes_file(part)):
        path.unlink(missing_ok=True)


def _boxes_file(part: Path) -> Path:
    return part.with_name(f"{part.stem}.boxes.npy")


def _save(path: Path, values: NDArray[np.floating]) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _mapped(path: Path, dtype: Dtype, shape: tuple[int, ...], remedy: str) -> NDArray[Any]:
    try:
        # As a plain array: indexing a numpy.memmap is slower.
        values = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {remedy}") from None
    except (ValueError, EOFError, SyntaxError) as reason:
        raise DataError(f"{path}: damaged or truncated ({' '.join(str(reason).split())}); {remedy}") from None
    if values.shape != shape or values.dtype != dtype:
        found = f"{values.dtype} of shape {values.shape}, not {dtype} of shape {shape}"
        raise DataError(f"{path}: holds {found}; {remedy}")
    return values


def _forest_digest(regions: Regions | None) -> str | None:
    file = None if regions is None else forest_file(regions)
    return None if file is None else file_hash(file)


def _about(folder: Path) -> About:
    file = folder / "about.json"
    if not file.exists():
        raise DataError(f"{folder}: {_no_store(folder)}")
    about = _read(About, file, f"delete {folder} and compute the features again")
    if about.format != FORMAT:
        raise DataError(f"{file}: format {about.format}; this version of Diptych reads format {FORMAT}")
    return about


def _read(kind: type[Kind], file: Path, remedy: str) -> Kind:
    try:
        return kind.model_validate(read_json(file, DataError))
    except ValidationError as error:
        mistake = first_error(error, kind) if error.errors()[0]["loc"] else "not written by `diptych features`"
        raise DataError(f"{file}: {mistake}; {remedy}") from None
    except DataError as reason:
        raise DataError(f"{reason}; {remedy}") from None


def _difference(theirs: FeatureStoreSpec, ours: FeatureStoreSpec) -> str | None:
    """The first difference of two specs, with both values; None if they are equal."""
    for name, theirs_value, ours_value in (
        ("backbone", theirs.backbone, ours.backbone),
        (f"weights of {ours.backbone}", theirs.weights[:12], ours.weights[:12]),
        ("crops", theirs.crops.name, ours.crops.name),
        ("resize", theirs.crops.resize, ours.crops.resize),
        ("side", *(spec.crops.side or "the backbone's own" for spec in (theirs, ours))),
        ("interpolation", theirs.crops.interpolation, ours.crops.interpolation),
        ("full_size", theirs.crops.full_size, ours.crops.full_size),
        ("rounding", theirs.crops.rounding, ours.crops.rounding),
        ("patches", theirs.crops.patches, ours.crops.patches),
        ("regions", *(spec.regions.label if spec.regions else "none" for spec in (theirs, ours))),
        ("structured forest", *((spec.forest or "none")[:12] for spec in (theirs, ours))),
        ("dtype", theirs.dtype, ours.dtype),
    ):
        if theirs_value != ours_value:
            return f"its features were computed with {name} {theirs_value}, not {ours_value}"
    return None


def _entries(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _no_store(folder: Path) -> str:
    if any(_entries(folder)):
        return "holds other files and no about.json, so it is not a feature store; name another folder"
    return "there are no features; compute them with `diptych features DATA`"
