"""The source of an index: a folder of photos, or a corpus with its splits, texts and columns.

A folder is a corpus if it, or a folder train, val or test in it, contains a file with a name that `open_corpus` knows,
such as captions.csv, metadata.jsonl or dataset_*.json. Its images are then those that this file names. In any other
folder every image at any depth is indexed; the texts of dog.jpg, if any, are in dog.txt beside it.
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

from diptych.data.address import Address
from diptych.data.corpus import Corpus, Picture
from diptych.data.entities.archive import has_annotations
from diptych.data.formats.pedes import FILE_NAME as PEDES_NAME
from diptych.data.formats.table import TABLE_SUFFIXES, extra_columns
from diptych.data.images import IMAGE_SUFFIXES, PictureFile, picture_path
from diptych.data.open import open_corpus
from diptych.data.parsing import SPLIT_NAMES, clean_text, read_lines
from diptych.errors import DataError

# Size and modification time of an image's file, and a string that changes with what else the source says about it.
Stamp = tuple[int, int, str | None]

_ENDINGS = frozenset(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)
_COULD_BE = (*sorted(TABLE_SUFFIXES), ".txt", ".token", ".json", ".npy")  # a fast first test of many names
_DATA_SET = re.compile(
    rf"(captions|metadata)\.(csv|tsv|jsonl|parquet|txt)|.*\.token(\.txt)?|(dataset|captions)_.*\.json|.*_ims\.npy|{PEDES_NAME}",
    re.IGNORECASE,
)


@dataclass
class Listing:
    """The contents of a source, found without reading an image.

    `files` are the stamps of the images by key, `text_files` the files with texts, and `unlisted` the folders, ending
    in a slash, that could not be read.
    """

    files: dict[str, Stamp] = field(default_factory=dict)
    text_files: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ImageInfo:
    """What a source says about an image.

    `path` is relative to the root of the source, `text_file` the file with the texts of this image, if any, and
    `problems` are those of that file.
    """

    path: str | None
    texts: Sequence[str]
    split: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    text_file: str | None = None
    problems: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """Images by key; `root` is the folder that contains all their files, if any."""

    address: str
    root: str | None

    def listing(self) -> Listing:
        """List the source as it is now."""
        ...

    def picture(self, key: str) -> Picture:
        """A listed image; may be called from several threads."""
        ...

    def info(self, key: str) -> ImageInfo:
        """What the source says about a listed image; may be called from several threads."""
        ...


def open_source(address: str | Corpus) -> Source:
    """The source at an address: a folder, or whatever `open_corpus` understands. A corpus has to be on disk."""
    if isinstance(address, Corpus):
        raise DataError(
            f"{address.name}: an index is made of data at an address, with which it is compared when it is updated; "
            "write the images to a folder and name that"
        )
    folder = Path(address).expanduser()
    if address.partition(":")[0] != "scenes" and folder.is_dir() and not _is_corpus(folder):
        return FolderSource(folder)
    return CorpusSource(open_corpus(address))


def source_name(address: str) -> str:
    """The default name of an index of a source."""
    if address.partition(":")[0] == "scenes":
        return "scenes"
    path = Path(address.partition("#")[0]).expanduser().absolute()
    return (path.name if path.is_dir() else path.stem) or "index"


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
                    listing.problems[_escaped(prefix + name) or prefix + name] = _describe(reason)
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


class CorpusSource:
    """The images of a corpus, with their splits, the texts of their groups, and the other columns of its table."""

    def __init__(self, corpus: Corpus) -> None:
        if corpus.pictures is None:
            raise DataError(
                f"{corpus.name}: has stored features but no pictures, which an index needs; name its photos"
            )
        self.address = str(corpus.address)
        self._corpus, self._pictures = corpus, corpus.pictures
        self._rows = {key: row for row, key in reversed(list(enumerate(corpus.image_ids)))}
        self._texts: dict[int, list[str]] = {}
        for group, text in zip(corpus.text_groups.tolist(), corpus.texts, strict=True):
            self._texts.setdefault(group, []).append(text)
        self._columns = _columns_of(Address.parse(self.address).path)
        self._paths = [None if path is None else _real(path) for path in map(picture_path, self._pictures)]
        there = {os.path.dirname(path) for path in self._paths if path is not None}  # noqa: PTH120
        self.root: str | None = os.path.commonpath(there) if there else None

    def listing(self) -> Listing:
        """The stamp of every image; that of a drawn picture is what it is drawn from."""
        listing = Listing(problems={f"{p.file}:{p.row}" if p.row else p.file: p.message for p in self._corpus.problems})
        for key, row in self._rows.items():
            path, size, modified = self._paths[row], 0, 0
            if path is not None:
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError as reason:
                    listing.problems[key] = _describe(reason)
                    continue
                size, modified = status.st_size, status.st_mtime_ns
            info = self.info(key)
            drawn = repr(self._pictures[row]) if path is None else ""
            parts = repr((info.path, info.texts, info.split, sorted(info.columns.items()), drawn))
            details = hashlib.blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
            listing.files[key] = size, modified, details
        return listing

    def picture(self, key: str) -> Picture:
        """The picture with this id."""
        return self._pictures[self._rows[key]]

    def info(self, key: str) -> ImageInfo:
        """The texts of the image's group, its split and its columns."""
        row = self._rows[key]
        path = self._paths[row]
        below = None if path is None or self.root is None else os.path.relpath(path, self.root)
        texts = list(dict.fromkeys(self._texts.get(int(self._corpus.image_groups[row]), ())))
        return ImageInfo(below, texts, str(self._corpus.image_splits[row]), self._columns.get(key, {}))


def _is_corpus(folder: Path) -> bool:
    """Whether a folder contains a file with the name of a corpus."""
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
    """The other columns of the table at a path, or in the folder there."""
    if path.is_dir():
        tables = [file for file in path.iterdir() if file.suffix.lower() in TABLE_SUFFIXES]
        named = [file for file in tables if file.stem.lower() in ("captions", "metadata")]
        return extra_columns(named[0]) if len(named) == 1 else {}
    return extra_columns(path) if path.suffix.lower() in TABLE_SUFFIXES and path.is_file() else {}


def _real(path: Path) -> str:
    """The real path of a file, because the root of the source must contain all of its files."""
    absolute = os.path.abspath(path)  # noqa: PTH100
    return os.path.realpath(absolute) if os.path.islink(absolute) else absolute  # noqa: PTH114


def _escaped(name: str) -> str | None:
    """A printable form of a name that is not valid UTF-8; None for any other name."""
    try:
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="backslashreplace").decode()
    return None


def _describe(reason: Exception) -> str:
    if isinstance(reason, FileNotFoundError):
        return "no such file, or a link to nothing"
    return f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)
