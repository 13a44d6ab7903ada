"""What an index is made from: a folder of photos as it is, or a corpus with its splits, texts and columns.

A folder is a corpus if a file in it, or in its folders train, val and test, says so by its name: captions.csv,
metadata.jsonl, dataset_*.json and what else `open_corpus` knows by name. Then the images are those that this file
names. Any other folder is walked: every image below it, with the texts of dog.jpg in dog.txt beside it, or none at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from diptych.data.corpus import Corpus, Picture
from diptych.data.entities.archive import has_annotations
from diptych.data.formats.pedes import FILE_NAME as PEDES_NAME
from diptych.data.formats.table import TABLE_SUFFIXES, extra_columns
from diptych.data.images import IMAGE_SUFFIXES, PictureFile
from diptych.data.open import open_corpus
from diptych.data.parsing import SPLIT_NAMES, clean_text, read_lines
from diptych.errors import DataError

Stamp = tuple[int, int, str | None]  # size and time of an image's file, and its details

_ENDINGS = frozenset(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)
_COULD_BE = (*sorted(TABLE_SUFFIXES), ".txt", ".token", ".json", ".npy")  # a quick look at very many names
_DATA_SET = re.compile(
    rf"(captions|metadata)\.(csv|tsv|jsonl|parquet|txt)|.*\.token(\.txt)?|(dataset|captions)_.*\.json|.*_ims\.npy|{PEDES_NAME}",
    re.IGNORECASE,
)


@dataclass
class Listing:
    """What is in a source now, without having read a single image.

    `beside` are the text files; `unlisted` the folders, ending in a slash, of which nobody knows what is in them.
    """

    files: dict[str, Stamp] = field(default_factory=dict)
    beside: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class About:
    """What a source says of an image.

    `path` is below the source's root, `beside` the file of its texts alone, and `problems` are those of that.
    """

    path: str | None
    texts: Sequence[str]
    split: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    beside: str | None = None
    problems: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """Images by their keys; `root` is the folder that all their files lie below."""

    address: str
    root: str | None

    def listing(self) -> Listing:
        """Look what is there now."""
        ...

    def picture(self, key: str) -> Picture:
        """One of the listed images; safe to call from several threads."""
        ...

    def about(self, key: str) -> About:
        """What goes with a listed image; safe to call from several threads."""
        ...


def open_source(address: str) -> Source:
    """The source at an address: a folder, or whatever `open_corpus` understands."""
    folder = Path(address).expanduser()
    if address.partition(":")[0] != "scenes" and folder.is_dir() and not _is_corpus(folder):
        return FolderSource(folder)
    return CorpusSource(open_corpus(address))


def source_name(address: str) -> str:
    """What to call an index of a source."""
    if address.partition(":")[0] == "scenes":
        return "scenes"
    path = Path(address.partition("#")[0]).expanduser().absolute()
    return (path.name if path.is_dir() else path.stem) or "index"


class FolderSource:
    """All images below a folder but the hidden ones; a link is followed where it stays within the folder."""

    def __init__(self, folder: Path) -> None:
        self.root: str | None = os.path.abspath(folder)  # noqa: PTH100 (links stay: who moves a disk moves the link)
        self.address = self.root
        self._real = os.path.realpath(folder)
        self._beside: set[str] = set()

    def listing(self) -> Listing:
        """Walk the folder; what cannot be listed below it is noted, and no reason to forget what was there."""
        listing = Listing()
        self._beside = listing.beside
        waiting = [("", self.address)]
        while waiting:
            prefix, folder = waiting.pop()
            try:
                waiting += self._list(listing, prefix, folder)
            except OSError as reason:
                if not prefix:
                    raise DataError(
                        f"{folder}: cannot be read ({reason.strerror}); is its disk there? Nothing was changed"
                    ) from None
                listing.unlisted.append(prefix)
                listing.problems[prefix] = f"this folder cannot be read ({reason.strerror}); what was in it is kept"
        return listing

    def picture(self, key: str) -> Picture:
        """The file of a key."""
        return PictureFile(Path(self.address, key))

    def about(self, key: str) -> About:
        """The image's texts, a line each, from the file beside it."""
        beside = f"{key.rpartition('.')[0]}.txt"
        texts: dict[str, None] = {}
        problems: dict[str, str] = {}
        lines = read_lines(Path(self.address, beside)) if beside in self._beside else ()
        for row, line in enumerate(lines, 1):
            try:
                if line.strip():
                    texts[clean_text(line)] = None
            except DataError as reason:
                problems.setdefault(beside, f"row {row}: {reason}")
        return About(key, list(texts), beside=beside, problems=problems)

    def _list(self, listing: Listing, prefix: str, folder: str) -> list[tuple[str, str]]:
        """Note the files of one folder; gives the folders in it."""
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
                if entry.is_dir(follow_symlinks=False) and not _unwritable(name):
                    folders.append((f"{prefix}{name}/", entry.path))
                    continue
                try:
                    status = entry.stat() if ordinary and name.isascii() else self._status(entry, wanted)
                except (OSError, DataError) as reason:
                    listing.problems[_unwritable(prefix + name) or prefix + name] = _why(reason)
                    continue
                if status is not None and ending == "txt":
                    texts[stem] = f"{status.st_size} {status.st_mtime_ns}"
                elif status is not None:
                    images.append((name, stem, status))
        listing.beside.update(f"{prefix}{stem}.txt" for _, stem, _ in images if stem in texts)
        for name, stem, status in images:
            listing.files[prefix + name] = status.st_size, status.st_mtime_ns, texts.get(stem)
        return folders

    def _status(self, entry: os.DirEntry[str], wanted: bool) -> os.stat_result | None:
        """Size and time of a wanted file that is not quite ordinary, None for what need not be mentioned.

        A link to a folder within the folder is not followed: that is walked where it is, so that there are no circles.
        """
        if _unwritable(entry.name):
            raise DataError("its name is not valid UTF-8; rename it")
        if entry.is_symlink() and (wanted or entry.is_dir()):
            real = os.path.realpath(entry.path)
            if os.path.commonpath([real, self._real]) != self._real:
                raise DataError("a link that leaves the folder; it is not read")
        if not wanted:
            return None
        status = entry.stat()
        return status if stat.S_ISREG(status.st_mode) else None


class CorpusSource:
    """The images of a corpus, with their splits, the texts of their groups, and the other columns of its table."""

    def __init__(self, corpus: Corpus) -> None:
        if corpus.pictures is None:
            raise DataError(
                f"{corpus.name}: has stored features but no pictures, and an index shows pictures; name its photos"
            )
        self.address = str(corpus.address)
        self._corpus, self._pictures = corpus, corpus.pictures
        self._rows = {key: row for row, key in reversed(list(enumerate(corpus.image_ids)))}
        self._texts: dict[int, list[str]] = {}
        for group, text in zip(corpus.text_groups.tolist(), corpus.texts, strict=True):
            self._texts.setdefault(group, []).append(text)
        self._columns = _columns_of(Path(self.address))
        self._paths = [_real(picture.path) if isinstance(picture, PictureFile) else None for picture in self._pictures]
        there = {os.path.dirname(path) for path in self._paths if path is not None}  # noqa: PTH120
        self.root: str | None = os.path.commonpath(there) if there else None

    def listing(self) -> Listing:
        """Look at the file of every image; a drawn picture is what it is drawn from."""
        listing = Listing(problems={f"{p.file}:{p.row}" if p.row else p.file: p.message for p in self._corpus.problems})
        for key, row in self._rows.items():
            path, size, modified = self._paths[row], 0, 0
            if path is not None:
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError as reason:
                    listing.problems[key] = _why(reason)
                    continue
                size, modified = status.st_size, status.st_mtime_ns
            said = self.about(key)
            drawn = repr(self._pictures[row]) if path is None else ""
            parts = repr((said.path, said.texts, said.split, sorted(said.columns.items()), drawn))
            details = hashlib.blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
            listing.files[key] = size, modified, details
        return listing

    def picture(self, key: str) -> Picture:
        """The picture of an id."""
        return self._pictures[self._rows[key]]

    def about(self, key: str) -> About:
        """The texts of the image's group, its split and its columns."""
        row = self._rows[key]
        path = self._paths[row]
        below = None if path is None or self.root is None else os.path.relpath(path, self.root)
        texts = list(dict.fromkeys(self._texts.get(int(self._corpus.image_groups[row]), ())))
        return About(below, texts, str(self._corpus.image_splits[row]), self._columns.get(key, {}))


def _is_corpus(folder: Path) -> bool:
    """Whether a file in a folder says by its name that it is a corpus."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (there may be very many)
        for part in names:
            if part.lower() in SPLIT_NAMES and (folder / part).is_dir():
                names = names + os.listdir(folder / part)  # noqa: PTH208
    except OSError as reason:
        raise DataError(f"{folder}: cannot be read ({reason.strerror}); check the permissions") from None
    if any(_DATA_SET.fullmatch(name) for name in names if name.endswith(_COULD_BE) and not name.startswith(".")):
        return True
    return has_annotations(folder) or any((folder / "annotations").glob("captions_*.json"))


def _columns_of(path: Path) -> dict[str, dict[str, str]]:
    """The further columns of the table at a path, or in the folder there."""
    if path.is_dir():
        tables = [file for file in path.iterdir() if file.suffix.lower() in TABLE_SUFFIXES]
        named = [file for file in tables if file.stem.lower() in ("captions", "metadata")]
        return extra_columns(named[0]) if len(named) == 1 else {}
    return extra_columns(path) if path.suffix.lower() in TABLE_SUFFIXES and path.is_file() else {}


def _real(path: Path) -> str:
    """Where a file lies: links are followed, for an index says which folder all of its files lie below."""
    absolute = os.path.abspath(path)  # noqa: PTH100
    return os.path.realpath(absolute) if os.path.islink(absolute) else absolute  # noqa: PTH114


def _unwritable(name: str) -> str | None:
    """A printable form of a name whose bytes are no text, None for all others."""
    try:
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="backslashreplace").decode()
    return None


def _why(reason: Exception) -> str:
    if isinstance(reason, FileNotFoundError):
        return "no such file, or a link to nothing"
    return f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)
