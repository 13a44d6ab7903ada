"""Several folders as one source: keys and paths begin with the name of their folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from diptych.data.corpus import Picture
from diptych.errors import DataError
from diptych.index.sources.folder import FolderSource
from diptych.index.sources.listing import ImageInfo, Listing
from diptych.index.sources.selection import Selection


class FoldersSource:
    """The images of several folders, given as (name, path) each; `name_folders` makes the names."""

    def __init__(self, folders: Sequence[tuple[str, str]], selection: Selection) -> None:
        self.folders = tuple(folders)
        self.address = ", ".join(path for _, path in folders)
        self.root: str | None = None
        self.selection = selection
        self._parts = {name: FolderSource(Path(path), selection) for name, path in folders}

    def listing(self) -> Listing:
        """List every folder; the known images of one that cannot be read are kept, but one must be readable."""
        whole = Listing()
        failures = []
        for name, part in self._parts.items():
            try:
                _add(whole, f"{name}/", part.listing())
            except DataError as reason:
                failures.append(reason)
                whole.unlisted.append(f"{name}/")
                whole.problems[f"{name}/"] = str(reason).removesuffix("; is its disk connected? Nothing was changed")
                whole.problems[f"{name}/"] += "; its known images are kept"
        if len(failures) == len(self._parts):
            raise failures[0]
        return whole

    def picture(self, key: str) -> Picture:
        """The file of a key."""
        name, _, below = key.partition("/")
        return self._parts[name].picture(below)

    def info(self, key: str) -> ImageInfo:
        """The image's texts, from the file beside it."""
        name, _, below = key.partition("/")
        found = self._parts[name].info(below)
        problems = {f"{name}/{file}": reason for file, reason in found.problems.items()}
        return replace(found, path=key, text_file=f"{name}/{found.text_file}", problems=problems)


def name_folders(paths: Sequence[str], named: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Name folders by the last part of their paths, with a number where that is taken; `named` keep their names.

    A folder that lies within another one is refused, because its images would be in the index twice.
    """
    folders = list(named)
    for path in paths:
        if path not in [known for _, known in folders]:
            folders.append((_unique_name(path, [name for name, _ in folders]), path))
    real = sorted((os.path.realpath(path), path) for _, path in folders)
    for place, (inner, path) in enumerate(real):
        for outer, containing in real[:place]:
            if os.path.commonpath([inner, outer]) == outer:
                raise DataError(f"{path}: lies within {containing}, with which it is indexed; name only one of them")
    return folders


def _unique_name(path: str, taken: Sequence[str]) -> str:
    first = os.path.basename(path) or "folder"  # noqa: PTH119
    names = {name.lower() for name in taken}
    name, number = first, 1
    while name.lower() in names:
        number += 1
        name = f"{first}-{number}"
    return name


def _add(whole: Listing, prefix: str, part: Listing) -> None:
    whole.files.update((prefix + key, stamp) for key, stamp in part.files.items())
    whole.text_files.update(prefix + key for key in part.text_files)
    whole.problems.update((prefix + key, reason) for key, reason in part.problems.items())
    whole.unlisted += [prefix + key for key in part.unlisted]
    whole.skipped += part.skipped
    whole.ignored += part.ignored
    whole.folders += part.folders
