"""Accounts for every file of a source: indexed, read for its captions, skipped with a reason, or ignored by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from diptych.index.sources.listing import OTHER_ENDINGS, Listing

_MOST_KINDS = 20  # that are told apart


@dataclass(frozen=True)
class FileCounts:
    """How many files a sync found, each counted once; of a corpus, its images and the rows that were left out.

    `ignored` are those that are no images, by kind, `waiting` those that an interrupted sync has not come to, and
    `folders` are the ignored folders by name, whose files are not counted.
    """

    indexed: int = 0
    captions: int = 0
    skipped: int = 0
    waiting: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def count(cls, listing: Listing, indexed: Collection[str], waiting: Collection[str] = ()) -> FileCounts:
        """The counts for a listing, given the keys of all entries, and of images that have not been read yet."""
        images = listing.files.keys() - set(waiting) if waiting else listing.files
        found = sum(map(indexed.__contains__, images))
        return cls(
            indexed=found,
            captions=len(listing.text_files),
            skipped=listing.skipped + len(images) - found,
            waiting=len(listing.files) - len(images),
            ignored=_most_common(listing.ignored),
            folders=_most_common(listing.folders),
        )

    @property
    def found(self) -> int:
        """The number of files."""
        return self.indexed + self.captions + self.skipped + self.waiting + sum(self.ignored.values())

    def to_json(self) -> dict[str, Any]:
        """All counts; their names do not change."""
        return {"found": self.found, **asdict(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> FileCounts:
        """The counts that an index has stored."""
        return cls(**{name: value for name, value in stored.items() if name in cls.__dataclass_fields__})

    def ignored_text(self) -> str:
        """The kinds of the files that were ignored, as a phrase: `57: 31 .mov, 20 .pdf, 6 without an ending`."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.ignored.items())
        return f"{sum(self.ignored.values()):,}: {kinds}" if kinds else "0"


def _most_common(counts: Counter[str]) -> dict[str, int]:
    """The counts, largest first; what is rare is joined."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    common, rare = dict(ordered[:_MOST_KINDS]), sum(count for _, count in ordered[_MOST_KINDS:])
    if rare:
        common[OTHER_ENDINGS] = common.get(OTHER_ENDINGS, 0) + rare
    return common
