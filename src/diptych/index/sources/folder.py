"""A folder of photos as a source: every image at any depth; the texts of dog.jpg, if any, are in dog.txt beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from diptych.data.corpus import Picture
from diptych.data.file_kinds import IMAGE_SUFFIXES
from diptych.data.images import PictureFile
from diptych.data.parsing import clean_text, read_lines
from diptych.errors import DataError
from diptych.index.sources.listing import ImageInfo, Listing, describe_failure

_ENDINGS = frozenset(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)


class FolderSource:
    """All images below a folder except hidden ones; a link is followed if it stays within the folder."""

    def __init__(self, folder: Path) -> None:
        self.root: str | None = os.path.abspath(folder)  # noqa: PTH100 (a link to the folder stays valid when the folder moves)
        self.address = self.root
        self._real = os.path.realpath(folder)
        self._text_files: set[str] = set()

    def listing(self) -> Listing:
        """Walk the folder; the known contents of a folder that cannot be read are kept."""
        listing = Listing()
        self._text_files = listing.text_files
        pending = [("", self.address)]
        while pending:
            prefix, folder = pending.pop()
            try:
                pending += self._list(listing, prefix, folder)
            except OSError as reason:
                if not prefix:
                    raise DataError(
                        f"{folder}: cannot be read ({reason.strerror}); is its disk connected? Nothing was changed"
                    ) from None
                listing.unlisted.append(prefix)
                listing.problems[prefix] = f"this folder cannot be read ({reason.strerror}); its known images are kept"
        return listing

    def picture(self, key: str) -> Picture:
        """The file of a key."""
        return PictureFile(Path(self.address, key))

    def info(self, key: str) -> ImageInfo:
        """The image's texts, one per line, from the file beside it."""
        text_file = f"{key.rpartition('.')[0]}.txt"
        texts: dict[str, None] = {}
        problems: dict[str, str] = {}
        lines = read_lines(Path(self.address, text_file)) if text_file in self._text_files else ()
        for row, line in enumerate(lines, 1):
            try:
                if line.strip():
                    texts[clean_text(line)] = None
            except DataError as reason:
                problems.setdefault(text_file, f"row {row}: {reason}")
        return ImageInfo(key, list(texts), text_file=text_file, problems=problems)

    def _list(self, listing: Listing, prefix: str, folder: str) -> list[tuple[str, str]]:
        """Add the files of one folder to the listing; returns the folders in it."""
        folders: list[tuple[str, str]] = []
        images: list[tuple[str, str, os.stat_result]] = []
        texts: dict[str, str] = {}
        with os.scandir(folder) as found:
            for entry in found:
                name = entry.name
                if name[0] == ".":
                    continue
                stem, _, ending = name.rpartition(".")
                wanted = ending in _ENDINGS or ending == "txt" or ending.lower() in _ENDINGS
                ordinary = entry.is_file(follow_symlinks=False)
                if ordinary and not wanted:
                    continue
                if entry.is_dir(follow_symlinks=False) and not _escaped(name):
                    folders.append((f"{prefix}{name}/", entry.path))
                    continue
                try:
                    status = entry.stat() if ordinary and name.isascii() else self._status(entry, wanted)
                except (OSError, DataError) as reason:
                    listing.problems[_escaped(prefix + name) or prefix + name] = describe_failure(reason)
                    continue
                if status is not None and ending == "txt":
                    texts[stem] = f"{status.st_size} {status.st_mtime_ns}"
                elif status is not None:
                    images.append((name, stem, status))
        listing.text_files.update(f"{prefix}{stem}.txt" for _, stem, _ in images if stem in texts)
        for name, stem, status in images:
            listing.files[prefix + name] = status.st_size, status.st_mtime_ns, texts.get(stem)
        return folders

    def _status(self, entry: os.DirEntry[str], wanted: bool) -> os.stat_result | None:
        """The status of a link or a file with an unusual name; None for what is silently ignored.

        A link to a folder within the source is not followed: that folder is walked anyway, and there are no cycles.
        """
        if _escaped(entry.name):
            raise DataError("its name is not valid UTF-8; rename it")
        if entry.is_symlink() and (wanted or entry.is_dir()):
            real = os.path.realpath(entry.path)
            if os.path.commonpath([real, self._real]) != self._real:
                raise DataError("a link that leaves the folder; it is not followed")
        if not wanted:
            return None
        status = entry.stat()
        return status if stat.S_ISREG(status.st_mode) else None


def _escaped(name: str) -> str | None:
    """A printable form of a name that is not valid UTF-8; None for any other name."""
    try:
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="backslashreplace").decode()
    return None
