"""What an index says about itself: its model, its source, and how it stores vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diptych.features.choices import Quality
from diptych.index.sources.selection import Selection
from diptych.index.vectors import STORAGES, Storage


@dataclass(frozen=True)
class IndexSpec:
    """The model and the source of an index, and how it stores vectors.

    `model` is the address of the model, `identity` the digest of its weights, and `size` the length of its vectors.
    `root` is the folder that contains all files, or None for drawn pictures and for several folders. In an index of
    several `folders`, (name, path) each, keys and paths begin with the name of their folder. `version` is that of
    Diptych, and `quality` that of the images' vectors, as in `diptych.load`.
    """

    model: str
    identity: str
    size: int
    rescores: bool
    storage: Storage
    source: str
    root: str | None
    version: str
    folders: tuple[tuple[str, str], ...] = ()
    selection: Selection = field(default_factory=Selection)
    quality: Quality = "best"

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that contain the files of the index."""
        if self.folders:
            return tuple(path for _, path in self.folders)
        return () if self.root is None else (self.root,)

    def file_of(self, path: str | None) -> str | None:
        """The file of an image, given its path as the index stores it; None if it has none."""
        if path is None:
            return None
        if self.folders:
            name, _, below = path.partition("/")
            folder = dict(self.folders).get(name)
            return None if folder is None else str(Path(folder, below))
        return None if self.root is None else str(Path(self.root, path))

    def contains(self, file: Path) -> bool:
        """Whether a file, its links resolved, may belong to the index: it is in a folder of it, or links may leave."""
        return self.selection.follow_links or any(file.is_relative_to(Path(root).resolve()) for root in self.roots)

    def to_json(self) -> dict[str, Any]:
        """Everything, as a backend may store it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> IndexSpec:
        """The spec that `to_json` described, or an earlier version did; TypeError or ValueError if it is none."""
        selection = dict(stored.get("selection", {}))
        spec = cls(
            **{
                **stored,
                "folders": tuple((str(name), str(path)) for name, path in stored.get("folders", ())),
                "selection": Selection(**{**selection, "ignored": tuple(selection.get("ignored", ()))}),
            }
        )
        if spec.storage not in STORAGES or spec.size <= 0:
            raise ValueError(f"storage {spec.storage!r}, size {spec.size}")
        return spec
