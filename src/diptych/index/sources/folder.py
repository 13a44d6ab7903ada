"""A folder of photos as a source: every image at any depth; the texts of dog.jpg, if any, are in dog.txt beside it."""

from __future__ import annotations

import os
from pathlib import Path

from diptych.data.corpus import Picture
from diptych.data.images import PictureFile
from diptych.data.parsing import clean_text, read_lines
from diptych.errors import DataError
from diptych.index.sources.listing import ImageInfo, Listing
from diptych.index.sources.selection import Selection
from diptych.index.sources.walk import Walk

_EVERYTHING = Selection()


class FolderSource:
    """The images below a folder that a selection does not leave out, except hidden ones."""

    def __init__(self, folder: Path, selection: Selection = _EVERYTHING) -> None:
        self.root: str | None = os.path.abspath(folder)  # noqa: PTH100 (a link to the folder stays valid when the folder moves)
        self.address = self.root
        self.folders: tuple[tuple[str, str], ...] = ()
        self.selection = selection
        self._text_files: set[str] = set()

    def listing(self) -> Listing:
        """Walk the folder; the known contents of a folder that cannot be read are kept."""
        listing = Walk(self.address, self.selection).run()
        self._text_files = listing.text_files
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
