"""Features on disk: computed once, kept by the hash of their image, read memory-mapped.

A store is a folder. `about.json` says how its rows were made. Rows lie in parts that are never written again:
`part-00000.npy`, and `part-00000.json` with the image of each row, which is written last and makes the part count.
Where regions were proposed, their boxes lie beside the rows in `part-00000.boxes.npy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    """How features are made: what two stores must share so that their rows can be compared."""

    backbone: str
    weights: str  # the digest
    crops: Crops = Crops()
    regions: Regions | None = None  # several vectors an image, or one
    forest: str | None = None  # the digest of the regions' model, whatever its path
    dtype: Dtype = "float32"

    @field_validator("regions", mode="before")
    @classmethod
    def _of_the_first_version(cls, regions: Any) -> Any:
        """Stores of version 0.1.0 know the grid alone, and say whether they have it."""
        return (Regions() if regions else None) if isinstance(regions, bool) else regions

    @classmethod
    def for_backbone(
        cls,
        name: str,
        backbone: Backbone,
        crops: Crops,
        *,
        regions: Regions | None = None,
        dtype: Dtype = "float32",
    ) -> FeatureStoreSpec:
        """The making of a backbone that is here, with the digest of its weights."""
        return cls(
            backbone=name,
            weights=weights_digest(backbone),
            crops=crops,
            regions=regions,
            forest=_forest_digest(regions),
            dtype=dtype,
        )


class About(Settings):
    """What `about.json` says."""

    format: int
    version: str
    making: FeatureStoreSpec
    shape: tuple[int, ...]  # of a row: (size,), (regions, channels) or (crops, size)


class Part(Settings):
    """What the JSON of a part says: the image of each row, and what is to be known of some images, by their hashes."""

    rows: list[str]
    enlarged: dict[str, tuple[int, int]] = Field(default={})  # smaller than the crop: width and height
    unreadable: dict[str, str] = Field(default={})
    decoder: str = DECODER  # another one may read what this one cannot


def store_folder(root: Path, making: FeatureStoreSpec) -> Path:
    """Where features of this making lie by default, such as `features/lite0-1C`."""
    words = [re.sub(r"[^\w.]+", "-", making.backbone).strip("-."), making.crops.name]
    words += ["short"] * (making.crops.resize == "short") + [str(making.crops.side)] * (making.crops.side is not None)
    words += [making.regions.label] if making.regions else []
    words += [making.forest[:8]] if making.forest else []
    words += [making.dtype] * (making.dtype != "float32")
    return root / "-".join(words)


def folder_for_weights(root: Path, making: FeatureStoreSpec) -> Path:
    """`store_folder`, with the digest of the weights appended if the store there belongs to other weights."""
    folder = store_folder(root, making)
    if not (folder / "about.json").exists() or _about(folder).making.weights == making.weights:
        return folder
    return folder.with_name(f"{folder.name}-{making.weights[:8]}")


def has_store(root: Path, spec: FeatureStoreSpec) -> bool:
    """Whether there is a store of these features below a folder."""
    return (folder_for_weights(root, spec) / "about.json").exists()


def spec_for(backbone: Backbone, image_input: ImageInput) -> FeatureStoreSpec:
    """How the crops that a model reads are stored; the many regions of a map take half the space, as float16."""
    assert image_input.crops is not None, "a backbone reads crops"
    dtype: Dtype = "float16" if image_input.reads_map else "float32"
    return FeatureStoreSpec.for_backbone(
        backbone.name, backbone, image_input.crops, regions=image_input.regions, dtype=dtype
    )


class FeatureStore:
    """Rows of features by the hash of their image; parts are added, nothing is ever changed."""

    def __init__(self, folder: Path, about: About) -> None:
        self.folder = folder
        self.shape = about.shape
        self.making = about.making
        self.enlarged: dict[str, tuple[int, int]] = {}
        self.unreadable: dict[str, str] = {}
        self._proposed = self.making.regions is not None and self.making.regions.are_boxes
        self._arrays: list[NDArray[np.floating]] = [np.empty((0, *self.shape), self.making.dtype)]
        self._boxes: list[NDArray[np.floating]] = [np.empty((0, self.shape[0], 4), np.float32)]
        self._row: dict[str, int] = {}
        self._count = 0
        self._next = 0
        for path in sorted(folder.glob("part-*.json")):
            self._add(path)

    @classmethod
    def open(cls, folder: Path, making: FeatureStoreSpec) -> FeatureStore:
        """The store in a folder, which must have been made in this way; what else it is, is said in one line."""
        about = _about(folder)
        if difference := _difference(about.making, making):
            raise DataError(f"{folder}: {difference}; name another folder, or delete this one")
        return cls(folder, about)

    @classmethod
    def make(cls, folder: Path, making: FeatureStoreSpec, shape: tuple[int, ...]) -> FeatureStore:
        """The store in a folder, or a new one there; only who holds the folder may call this."""
        file = folder / "about.json"
        if not file.exists():
            if any(not path.name.startswith(".") for path in _entries(folder)):
                raise DataError(f"{folder}: {_no_store(folder)}")
            about = About(format=FORMAT, version=diptych.__version__, making=making, shape=shape)
            write_json(file, about.model_dump(mode="json"))
        store = cls.open(folder, making)
        if store.shape != shape:
            raise DataError(
                f"{file}: rows of shape {store.shape}, the backbone gives {shape}; delete {folder} and compute again"
            )
        return store

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: str) -> bool:
        """Whether the image of this hash is done with: has a row, or cannot be read."""
        return digest in self._row or digest in self.unreadable

    def has_row(self, digest: str) -> bool:
        """Whether the image of this hash has features."""
        return digest in self._row

    def features(self, hashes: Sequence[str]) -> Features:
        """The rows of these images, in this order; nothing is read yet."""
        return Features(self._arrays, self._rows_of(hashes))

    def boxes(self, hashes: Sequence[str]) -> Features | None:
        """The proposed regions of these images, (regions, 4) relative to the photo each, where there are some."""
        return Features(self._boxes, self._rows_of(hashes)) if self._proposed else None

    def _rows_of(self, hashes: Sequence[str]) -> Integers:
        for digest in hashes:
            if digest not in self._row:
                raise DataError(f"{self.folder}: no features of the image with hash {digest[:12]}; compute them first")
        return np.array([self._row[digest] for digest in hashes], np.int64)

    def write(self, part: Part, rows: NDArray[np.floating], boxes: Floats | None = None) -> None:
        """Add a part: whole, or not at all. Values that the store's numbers cannot hold are refused."""
        if rows.shape != (len(part.rows), *self.shape) or (boxes is not None) != self._proposed:
            raise ValueError(f"rows of shape {rows.shape} for {len(part.rows)} images")
        rows = self._finite(rows)
        name = self.folder / f"part-{self._next:05d}"
        if boxes is not None:
            _save(_boxes_file(name), boxes)
        _save(name.with_suffix(".npy"), rows)
        write_json(name.with_suffix(".json"), part.model_dump(mode="json"))
        self._add(name.with_suffix(".json"))

    def _finite(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        with np.errstate(over="ignore"):
            stored = rows.astype(self.making.dtype, copy=False)
        if np.isfinite(stored).all():
            return stored
        if np.isfinite(rows).all():
            raise DataError(f"{self.folder}: features beyond 65,504, the largest float16; use --dtype float32")
        raise DataError(f"{self.folder}: {self.making.backbone} gives features that are not finite; check its weights")

    def _add(self, path: Path) -> None:
        remedy = f"delete {path.with_suffix('')}.* and compute the features again"
        number = re.fullmatch(r"part-(\d+)", path.stem)
        if number is None:
            raise DataError(f"{path}: not the name of a part; move it away")
        part = _read(Part, path, remedy)
        rows = _mapped(path.with_suffix(".npy"), self.making.dtype, (len(part.rows), *self.shape), remedy)
        if self._proposed:
            self._boxes.append(_mapped(_boxes_file(path), "float32", (len(rows), self.shape[0], 4), remedy))
        self._arrays.append(rows)
        for row, digest in enumerate(part.rows):
            self._row.setdefault(digest, self._count + row)
        self._count += len(rows)
        self._next = max(self._next, int(number[1]) + 1)
        self.enlarged |= part.enlarged
        if part.decoder == DECODER:
            self.unreadable |= part.unreadable


def _boxes_file(part: Path) -> Path:
    return part.with_name(f"{part.stem}.boxes.npy")


def _save(path: Path, values: NDArray[np.floating]) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _mapped(path: Path, dtype: Dtype, shape: tuple[int, ...], remedy: str) -> NDArray[Any]:
    try:
        # As a plain array: the subclass for mapped ones costs time whenever rows are taken.
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
        mistake = first_error(error, kind) if error.errors()[0]["loc"] else "not what `diptych features` writes"
        raise DataError(f"{file}: {mistake}; {remedy}") from None
    except DataError as reason:
        raise DataError(f"{reason}; {remedy}") from None


def _difference(theirs: FeatureStoreSpec, ours: FeatureStoreSpec) -> str | None:
    """What two makings differ in first, as words with both values."""
    for name, there, here in (
        ("backbone", theirs.backbone, ours.backbone),
        (f"weights of {ours.backbone}", theirs.weights[:12], ours.weights[:12]),
        ("crops", theirs.crops.name, ours.crops.name),
        ("resize", theirs.crops.resize, ours.crops.resize),
        ("side", *(making.crops.side or "the backbone's own" for making in (theirs, ours))),
        ("regions", *(making.regions.label if making.regions else "none" for making in (theirs, ours))),
        ("structured forest", *((making.forest or "none")[:12] for making in (theirs, ours))),
        ("dtype", theirs.dtype, ours.dtype),
    ):
        if there != here:
            return f"features made with {name} {there}, asked for {here}"
    return None


def _entries(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _no_store(folder: Path) -> str:
    if any(_entries(folder)):
        return "holds other files and no about.json, so it is no store of features; name another folder"
    return "no features here; compute them with `diptych features DATA`"
