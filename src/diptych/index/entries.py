"""What an index holds and what it answers: entries, what may be asked of them, hits and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["image", "text"]


@dataclass(frozen=True)
class Entry:
    """An image or a text of the index.

    `key` names it in its source: an image's path below the folder, or its id in a corpus. `image` is the entry of the
    image to show: its own, or that of a text's image. `taken` is the day of an image, as 2026-11-16, and `columns` are
    what else its source's table says of it; a text has those of its image.
    """

    id: int
    kind: Kind
    key: str
    image: int | None
    text: str | None = None
    path: str | None = None
    folder: str = ""
    split: str | None = None
    taken: str | None = None
    width: int = 0
    height: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything a client may know; where the file lies is not of them."""
        return {
            "id": self.id,
            "kind": self.kind,
            "key": self.key,
            "image": self.image,
            "text": self.text,
            "folder": self.folder,
            "split": self.split,
            "taken": self.taken,
            "width": self.width,
            "height": self.height,
            "columns": dict(self.columns),
        }


@dataclass(frozen=True)
class Filters:
    """Which entries may be found; what is not set lets everything through.

    `folder` is a folder of the source and all below it; `since` and `until` are days, both included; `columns` are
    values of the source's table.
    """

    folder: str | None = None
    since: str | None = None
    until: str | None = None
    split: str | None = None
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SearchRequest:
    """What a query wants: entries of a kind, how many of them, and which are let through.

    `without` leaves out one entry, with its equals: who asks for more like an image does not want that image.
    """

    to: Kind = "image"
    k: int = 10
    filters: Filters = field(default_factory=Filters)
    without: int | None = None


@dataclass(frozen=True)
class Hit:
    """An entry that was found, and its score; `near` are entries that show the same, which the hit stands for.

    It stands out where its score is more than entries that have nothing to do with the query reach.
    """

    entry: Entry
    score: float
    stands_out: bool = True
    near: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry with its score."""
        return {
            **self.entry.to_json(),
            "score": self.score,
            "stands_out": self.stands_out,
            "near": list(self.near),
        }


@dataclass(frozen=True)
class Answer:
    """The hits, best first; `found` is false where none of them stands out, and `searched` how many could be found."""

    hits: tuple[Hit, ...]
    found: bool
    searched: int
    method: Literal["exact", "ivf"] = "exact"

    def to_json(self) -> dict[str, Any]:
        """Everything under lasting names."""
        return {
            "found": self.found,
            "searched": self.searched,
            "method": self.method,
            "hits": [hit.to_json() for hit in self.hits],
        }
