"""The walk through a folder of photos: lists its images, and accounts for every other file."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from diptych.data.file_kinds import INDEXED_SUFFIXES, RAW_SUFFIXES
from diptych.errors import DataError
from diptych.index.sources.listing import OTHER_ENDINGS, Listing, describe_failure
from diptych.index.sources.raw_pairs import raw_doubles
from diptych.index.sources.selection import Selection, is_hidden

_ENDINGS = frozenset(suffix.removeprefix(".") for suffix in INDEXED_SUFFIXES)
_RAW_ENDINGS = frozenset(suffix.removeprefix(".") for suffix in RAW_SUFFIXES)
_LONGEST_ENDING = 10  # of a kind; what follows the dot in "Dr. Smith's letter" is none

HIDDEN = "hidden"
BESIDE_JPEG = "RAW beside a JPEG"
BY_PATTERN = "by a pattern"
WITHOUT_ENDING = "without an ending"
LINK_TO_FOLDER = "linking to folders"
LISTED_ALREADY = "linking to what is listed already"
SPECIAL = "special"


class _Link(NamedTuple):
    """A link to a folder or an image, and the stamp of the texts beside it."""

    key: str
    path: str
    texts: str | None
    wanted: bool


class _Folder:
    """What was found in one folder."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.folders: list[tuple[str, str]] = []
        self.images: list[tuple[str, str, os.stat_result]] = []
        self.endings: set[str] = set()  # of the images
        self.links: list[tuple[str, str, str, bool]] = []  # key, path, stem, whether it may be an image
        self.texts: dict[str, str] = {}  # their stamps by the stem of their name

    def add(self, name: str, stem: str, ending: str, status: os.stat_result) -> None:
        """Add an image or its texts."""
        if ending == "txt":
            self.texts[stem] = f"{status.st_size} {status.st_mtime_ns}"
        else:
            self.images.append((name, stem, status))
            self.endings.add(ending)

    def leave_out_raw_doubles(self) -> int:
        """Leave out RAW photos that were written beside a JPEG or HEIC, and return their number."""
        if not any(ending.lower() in _RAW_ENDINGS for ending in self.endings):
            return 0
        doubles = raw_doubles(name for name, _, _ in self.images)
        self.images = [image for image in self.images if image[0] not in doubles]
        return len(doubles)


class Walk:
    """One walk through a folder.

    By default a link is followed if it leads to an image within the folder. If the selection follows links, those to
    folders and to images anywhere are followed, after everything else; what the walk has seen already is not listed
    again under another name, so that a cycle of links ends.
    """

    def __init__(self, folder: str, selection: Selection) -> None:
        self._folder, self._real = folder, os.path.realpath(folder)
        self._ignores, self._follows_links = selection.ignores, selection.follow_links
        self._plain_endings = _ENDINGS if self._ignores is None else frozenset()
        self._listing = Listing()
        self._links: list[_Link] = []
        self._seen: set[tuple[int, int]] = set()  # folders and images, if links are followed

    def run(self) -> Listing:
        """The contents of the folder; an error if the folder itself cannot be read."""
        self._walk("", self._folder)
        while self._links:
            links, self._links = sorted(self._links), []
            for link in links:
                self._follow(link)
        return self._listing

    def _walk(self, prefix: str, folder: str) -> None:
        pending = [(prefix, folder)]
        while pending:
            prefix, folder = pending.pop()
            try:
                if not self._follows_links or self._is_new(os.stat(folder)):  # noqa: PTH116 (there may be very many)
                    pending += self._list(prefix, folder)
            except OSError as reason:
                if not prefix:
                    raise DataError(
                        f"{folder}: cannot be read ({reason.strerror}); is its disk connected? Nothing was changed"
                    ) from None
                self._listing.unlisted.append(prefix)
                self._listing.problems[prefix] = (
                    f"this folder cannot be read ({reason.strerror}); its known images are kept"
                )

    def _list(self, prefix: str, folder: str) -> list[tuple[str, str]]:
        """Add the files of one folder to the listing; returns the folders in it."""
        found = _Folder(prefix)
        with os.scandir(folder) as entries:
            for entry in entries:
                if not self._takes_at_once(found, entry) and not self._is_left_out(prefix, entry):
                    self._take(found, entry)
        listing, texts = self._listing, found.texts
        if doubles := found.leave_out_raw_doubles():
            listing.ignored[BESIDE_JPEG] += doubles
        for name, stem, status in found.images:
            listing.files[prefix + name] = status.st_size, status.st_mtime_ns, texts.get(stem)
            if self._follows_links:
                self._is_new(status)
        self._links += [_Link(key, path, texts.get(stem), wanted) for key, path, stem, wanted in found.links]
        if texts:
            used = {stem for _, stem, _ in found.images} | {stem for _, _, stem, _ in found.links}
            listing.text_files.update(f"{prefix}{stem}.txt" for stem in texts if stem in used)
            if unused := len(texts.keys() - used):
                listing.ignored[".txt"] += unused
        return found.folders

    def _takes_at_once(self, found: _Folder, entry: os.DirEntry[str]) -> bool:
        """Take an image without any peculiarity, which most files are: the other steps come to the same, but slower."""
        name = entry.name
        stem, _, ending = name.rpartition(".")
        if ending not in self._plain_endings or name[0] == "." or not name.isascii():
            return False
        if not entry.is_file(follow_symlinks=False):
            return False
        try:
            found.images.append((name, stem, entry.stat()))
        except OSError:
            return False
        found.endings.add(ending)
        return True

    def _is_left_out(self, prefix: str, entry: os.DirEntry[str]) -> bool:
        """Whether a file or folder is left out by its name or by a pattern; it is counted."""
        name, is_folder = entry.name, entry.is_dir(follow_symlinks=False)
        if is_hidden(name, folder=is_folder):
            why = HIDDEN
        elif self._ignores is not None and self._ignores(prefix + name, is_folder):
            why = BY_PATTERN
        else:
            return False
        if is_folder:
            self._listing.folders[_escaped(name) or name] += 1
        else:
            self._listing.ignored[why] += 1
        return True

    def _take(self, found: _Folder, entry: os.DirEntry[str]) -> None:
        name = entry.name
        stem, dot, ending = name.rpartition(".")
        wanted = bool(dot) and (ending in _ENDINGS or ending == "txt" or ending.lower() in _ENDINGS)
        ordinary = entry.is_file(follow_symlinks=False)
        if ordinary and not wanted:
            self._listing.ignored[_kind(dot, ending)] += 1
            return
        try:
            if ordinary and name.isascii():
                found.add(name, stem, ending, entry.stat())
            else:
                self._take_special(found, entry, wanted)
        except (OSError, DataError) as reason:
            key = found.prefix + name
            self._listing.problems[_escaped(key) or key] = describe_failure(reason)
            self._listing.skipped += not entry.is_dir(follow_symlinks=False)

    def _take_special(self, found: _Folder, entry: os.DirEntry[str], wanted: bool) -> None:
        """Take a folder, a link, a special file, or a file with an unusual name.

        A link to a folder within the source need not be followed: that folder is walked anyway.
        """
        name = entry.name
        stem, dot, ending = name.rpartition(".")
        if _escaped(name):
            raise DataError("its name is not valid UTF-8; rename it")
        if entry.is_dir(follow_symlinks=False):
            found.folders.append((f"{found.prefix}{name}/", entry.path))
            return
        if entry.is_symlink() and (wanted or entry.is_dir()):
            if self._follows_links and ending != "txt":
                found.links.append((found.prefix + name, entry.path, stem, wanted))
                return
            self._check_link(entry)
        if entry.is_dir():
            self._listing.ignored[LINK_TO_FOLDER] += 1
        elif not wanted and entry.is_symlink():
            self._listing.ignored[_kind(dot, ending)] += 1
        elif wanted and stat.S_ISREG((status := entry.stat()).st_mode):
            found.add(name, stem, ending, status)
        else:
            self._listing.ignored[SPECIAL] += 1

    def _check_link(self, entry: os.DirEntry[str]) -> None:
        """Refuse a link that leaves the folder, unless links are followed."""
        real = os.path.realpath(entry.path)
        if not self._follows_links and os.path.commonpath([real, self._real]) != self._real:
            raise DataError("a link that leaves the folder; it is not followed, unless with --follow-links")

    def _follow(self, link: _Link) -> None:
        """List the image that a link leads to, or walk the folder, unless that is listed already."""
        listing = self._listing
        try:
            status = os.stat(link.path)  # noqa: PTH116
        except OSError as reason:
            listing.problems[link.key] = describe_failure(reason)
            listing.skipped += 1
            return
        if (status.st_dev, status.st_ino) in self._seen:
            listing.ignored[LISTED_ALREADY] += 1
        elif stat.S_ISDIR(status.st_mode):
            self._walk(f"{link.key}/", link.path)
        elif stat.S_ISREG(status.st_mode) and link.wanted:
            self._is_new(status)
            listing.files[link.key] = status.st_size, status.st_mtime_ns, link.texts
        else:
            listing.ignored[SPECIAL] += 1

    def _is_new(self, status: os.stat_result) -> bool:
        """Whether a file or folder is seen for the first time; from now on it has been."""
        identity = status.st_dev, status.st_ino
        is_new = identity not in self._seen
        self._seen.add(identity)
        return is_new


def _kind(dot: str, ending: str) -> str:
    """The kind of a file that is no image, by its ending."""
    if not dot:
        return WITHOUT_ENDING
    return f".{ending.lower()}" if ending.isalnum() and len(ending) <= _LONGEST_ENDING else OTHER_ENDINGS


def _escaped(name: str) -> str | None:
    """A printable form of a name that is not valid UTF-8; None for any other name."""
    try:
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        return os.fsencode(name).decode(errors="backslashreplace")
    return None
