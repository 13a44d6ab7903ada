"""Finding image files by the names that a data file uses for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from diptych.errors import DataError


class ImageFinder:
    """Finds named images in a few folders; each folder is listed once, however many images are looked for."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = [root for root in dict.fromkeys(roots) if root.is_dir()]
        self._listings: dict[str, list[tuple[Path, frozenset[str]]]] = {}

    def find(self, *names: str) -> Path:
        """The file of the first of these names that exists in any folder; if none does, a DataError."""
        for name in names:
            subfolder, _, file = name.rpartition("/")
            if subfolder not in self._listings:
                folders = [root / subfolder for root in self._roots]
                self._listings[subfolder] = [(folder, _file_names(folder)) for folder in folders]
            for folder, files in self._listings[subfolder]:
                if file in files:
                    return folder / file
        searched = " or ".join(str(root) for root in self._roots)
        raise DataError(f"no image {names[0]!r} in {searched or 'any folder'}")


def _file_names(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except (OSError, ValueError):  # no such folder, or a name that no folder can have
        return frozenset()
