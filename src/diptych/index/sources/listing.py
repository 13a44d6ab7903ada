"""What every source of an index offers: a listing of its images, and what it says about each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from diptych.data.corpus import Picture
from diptych.index.sources.selection import Selection

# Size and modification time of an image's file, and a string that changes with what else the source says about it.
Stamp = tuple[int, int, str | None]

OTHER_ENDINGS = "with other endings"


@dataclass
class Listing:
    """The contents of a source, found without reading an image.

    `files` are the stamps of the images by key, `text_files` the files with texts, and `unlisted` the folders, ending
    in a slash, that could not be read. `skipped` counts the files that have a problem, `ignored` those that are no
    images, by kind (`.mov`, `without an ending`), and `folders` the ignored folders by name.
    """

    files: dict[str, Stamp] = field(default_factory=dict)
    text_files: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    skipped: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    folders: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class ImageInfo:
    """What a source says about an image.

    `path` is relative to the root of the source, `text_file` the file with the texts of this image, if any, and
    `problems` are those of these files. `moment` is the second of a video that the image shows, if it is a frame.
    """

    path: str | None
    texts: Sequence[str]
    split: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    text_file: str | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    moment: float | None = None


class Source(Protocol):
    """Images by key; `root` is the folder that contains all their files, if any.

    If the source is several folders, `folders` are their names, with which keys and paths begin, and their paths.
    """

    address: str
    root: str | None
    folders: tuple[tuple[str, str], ...]
    selection: Selection

    def listing(self) -> Listing:
        """List the source as it is now."""
        ...

    def picture(self, key: str) -> Picture:
        """A listed image; may be called from several threads."""
        ...

    def info(self, key: str) -> ImageInfo:
        """What the source says about a listed image; may be called from several threads."""
        ...


def describe_failure(reason: Exception) -> str:
    """Why a file could not be listed, in a few words."""
    if isinstance(reason, FileNotFoundError):
        return "no such file, or a link to nothing"
    return f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)
