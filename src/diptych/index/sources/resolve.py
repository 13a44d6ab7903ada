"""Decides what an index is made of, from what a user names now and what the index was made of before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.errors import DataError, did_you_mean
from diptych.index.sources.folder import FolderSource
from diptych.index.sources.listing import Source
from diptych.index.sources.open import is_folder_of_photos, open_source
from diptych.index.sources.selection import Selection, check_patterns
from diptych.index.sources.several import FoldersSource, name_folders
from diptych.index.spec import IndexSpec


@dataclass(frozen=True)
class SourceRequest:
    """What a user asks for: sources by their addresses, of which there may be none for an existing index.

    Folders of photos are added to those of the index, and `remove` takes folders away. `ignored` and `follow_links`
    are as before if they are None.
    """

    sources: tuple[str | Corpus, ...] = ()
    ignored: tuple[str, ...] | None = None
    follow_links: bool | None = None
    remove: tuple[str, ...] = ()

    def resolve(self, before: IndexSpec | None) -> Source:
        """The source of an index that was made as `before`, or of a new one."""
        selection = self._selection(Selection() if before is None else before.selection)
        known = _known_folders(before)
        if self.remove:
            known = self._without_removed(known)
        elif before is not None and not known:  # a corpus
            return open_source(self.sources[0] if self.sources else before.source, selection)
        names = [_absolute(source) for source in self.sources]
        paths = [path for _, path in known]
        if len({*names, *paths}) == 1 and not (before and before.folders):
            if paths and not Path(paths[0]).is_dir():  # it has vanished, which its listing says
                return FolderSource(Path(paths[0]), selection)
            return open_source(self.sources[0] if self.sources else paths[0], selection)
        if not names and not paths:
            raise DataError("no source is named; name a folder of photos")
        if known and names and not {*names} & {*paths}:
            return self._of_others(names, selection)
        for source, name in zip(self.sources, names, strict=True):
            if name not in paths:
                _check_is_folder(source)
        named = [(name, path) for name, path in known if name]
        return FoldersSource(name_folders([*paths, *names], named), selection)

    def _of_others(self, names: Sequence[str], selection: Selection) -> Source:
        """The source that is named instead of the known ones, which the caller refuses."""
        if len(names) == 1:
            return open_source(self.sources[0], selection)
        return FoldersSource(name_folders(names), selection)

    def _selection(self, before: Selection) -> Selection:
        changed = before
        if self.ignored is not None:
            changed = replace(changed, ignored=check_patterns(self.ignored))
        return changed if self.follow_links is None else replace(changed, follow_links=self.follow_links)

    def _without_removed(self, known: list[tuple[str, str]]) -> list[tuple[str, str]]:
        removed = [_absolute(folder) for folder in self.remove]
        paths = [path for _, path in known]
        for path in removed:
            if path not in paths:
                raise DataError(f"{path}: not a folder of this index; {did_you_mean(path, paths)}")
            if path in map(_absolute, self.sources):
                raise DataError(f"{path}: is to be removed and indexed at once; name it only once")
        left = [(name, path) for name, path in known if path not in removed]
        if not left:
            raise DataError("the only folder of an index cannot be removed from it; delete the file of the index")
        return left


def _known_folders(before: IndexSpec | None) -> list[tuple[str, str]]:
    """The folders of an index by name; a single folder has no name, and a corpus is no folder."""
    if before is None:
        return []
    is_folder = before.root is not None and before.source == before.root
    return list(before.folders) or ([("", before.source)] if is_folder else [])


def _absolute(source: str | Corpus) -> str:
    """The absolute path of a folder, the address of a corpus."""
    path = os.path.expanduser(str(source))  # noqa: PTH111
    is_path = isinstance(source, str) and source.partition(":")[0] != "scenes"
    return os.path.abspath(path) if is_path else str(source)  # noqa: PTH100


def _check_is_folder(source: str | Corpus) -> None:
    path = Path(_absolute(source))
    if path.is_absolute() and not path.exists():
        raise DataError(f"{source}: no such file or folder")
    if not isinstance(source, str) or not is_folder_of_photos(source):
        raise DataError(f"{source}: several sources must be folders of photos; index this one into a file of its own")
