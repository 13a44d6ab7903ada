"""A corpus as a source: the images that it names, with its splits, texts and columns."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus, Picture
from diptych.data.formats.table import TABLE_SUFFIXES, extra_columns
from diptych.data.images import picture_path
from diptych.errors import DataError
from diptych.index.sources.listing import ImageInfo, Listing, describe_failure
from diptych.index.sources.selection import Selection


class CorpusSource:
    """The images of a corpus, with their splits, the texts of their groups, and the other columns of its table."""

    def __init__(self, corpus: Corpus) -> None:
        if corpus.pictures is None:
            raise DataError(
                f"{corpus.name}: has stored features but no pictures, which an index needs; name its photos"
            )
        self.address = str(corpus.address)
        self.folders: tuple[tuple[str, str], ...] = ()
        self.selection = Selection()
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
        listing.skipped = len(self._corpus.problems)
        for key, row in self._rows.items():
            path, size, modified = self._paths[row], 0, 0
            if path is not None:
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError as reason:
                    listing.problems[key] = describe_failure(reason)
                    listing.skipped += 1
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
