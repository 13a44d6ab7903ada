"""Flickr30K Entities: photos, their sentences, and where in the photo the things are that a sentence names.

A folder holds annotations.zip (or what is in it, `Annotations/*.xml` and `Sentences/*.txt`) and lists of ids, a line
each: train.txt, val.txt, test.txt. The photo of id 12 is `12.jpg` or `12_anything.jpg`. Annotations of ids that are
in no list are not looked at. An XML file that cannot be used costs its photo the boxes, never the sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from diptych.data.corpus import Box, Corpus, Phrase
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.entities.archive import Archive, open_archive
from diptych.data.entities.markup import Boxes, read_boxes, read_sentence
from diptych.data.images import IMAGE_SUFFIXES, folder_of
from diptych.data.parsing import non_empty, read_lines
from diptych.errors import DataError

_SPLITS = ("train", "val", "test")
_LINE_END = re.compile(r"\r\n?|\n")


def read_entities(folder: Path, images: Path | None = None) -> Corpus:
    """The corpus in a folder of annotations; a photo is a group, with all its sentences.

    The photos are in `images`, else in `images/`, `flickr30k-images/` or the folder itself.
    """
    archive = open_archive(folder)
    lists = {split: file for split in _SPLITS if (file := folder / f"{split}.txt").is_file()}
    if not lists:
        raise DataError(f"{folder}: none of train.txt, val.txt and test.txt; list the ids of the photos, one a line")
    roots = [folder / "images", folder / "flickr30k-images", folder] if images is None else [folder_of(images)]
    reading = _Reading(CorpusBuilder(folder), archive, _Photos(roots))
    for split, file in lists.items():
        for row, line in enumerate(read_lines(file), 1):
            if line.strip():
                with reading.builder.reading_row(file, row):
                    reading.add(non_empty(line, "id"), split, file, row)
    return replace(reading.builder.build(), boxes=reading.boxes, phrases=reading.phrases)


class _Photos:
    """The photos in a few folders, by their ids."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = [root for root in roots if root.is_dir()]
        self._whole: dict[str, list[Path]] = {}  # by the whole name, which comes first, and by what is before its _
        self._begun: dict[str, list[Path]] = {}
        for root in self._roots:
            for file in sorted(root.iterdir()):
                if file.suffix.lower() in IMAGE_SUFFIXES:
                    self._whole.setdefault(file.stem, []).append(file)
                    self._begun.setdefault(file.stem.partition("_")[0], []).append(file)

    def find(self, identity: str) -> Path:
        found = self._whole.get(identity) or self._begun.get(identity) or []
        if not found:
            looked = " or ".join(str(root) for root in self._roots)
            raise DataError(f"no photo of id {identity!r} in {looked}; name their folder after a #: data#photos")
        here = [file for file in found if file.parent == found[0].parent]
        if len(here) > 1:
            names = ", ".join(file.name for file in here[:3])
            raise DataError(f"id {identity!r} could be any of {names}; which photo is meant is unknown")
        return here[0]


@dataclass
class _Reading:
    """Photo after photo on the way to a corpus; the columns here keep step with the rows of the builder."""

    builder: CorpusBuilder
    archive: Archive
    photos: _Photos
    boxes: list[list[Box]] = field(default_factory=list)
    phrases: list[list[Phrase]] = field(default_factory=list)

    def add(self, identity: str, split: str, file: Path, row: int) -> None:
        photo = self.photos.find(identity)
        self.builder.require_unique("id", identity)
        self.builder.require_unique("photo", str(photo))
        if f"Sentences/{identity}.txt" not in self.archive:
            raise DataError(f"no Sentences/{identity}.txt in {self.archive.place}")
        sentences = self._sentences(f"Sentences/{identity}.txt")
        found = self._boxes(f"Annotations/{identity}.xml", file, row)
        self.builder.add_image(photo.name, photo, identity, split)
        self.boxes.append([] if found is None else found.boxes)
        unknown: set[str] = set()
        for line, text, phrases in sentences:
            self.builder.add_text(text, identity, split)
            self.phrases.append(phrases)
            for phrase in phrases:
                if found is not None and phrase.chain not in found.chains | unknown:
                    unknown.add(phrase.chain)
                    self._problem(f"Sentences/{identity}.txt", line, f"the XML does not know chain {phrase.chain}")

    def _sentences(self, name: str) -> list[tuple[int, str, list[Phrase]]]:
        """The usable sentences of a photo, each with its line."""
        # Bytes that are not UTF-8 are kept as they are, for `filled` to refuse the line that has them.
        content = self.archive.read(name).decode("utf-8-sig", "surrogateescape")
        sentences = []
        for row, line in enumerate(_LINE_END.split(content), 1):
            if line.strip():
                try:
                    sentences.append((row, *read_sentence(non_empty(line, "sentence"))))
                except DataError as reason:
                    self._problem(name, row, str(reason))
        return sentences

    def _boxes(self, name: str, file: Path, row: int) -> Boxes | None:
        """The boxes of a photo, or nothing if its XML file is missing or cannot be used."""
        if name not in self.archive:
            self.builder.add_problem(file, row, f"no {name} in {self.archive.place}; the photo has no boxes")
            return None
        try:
            found = read_boxes(self.archive.read(name))
        except DataError as reason:
            self._problem(name, None, f"{reason}; the photo has no boxes")
            return None
        for line, message in found.problems:
            self._problem(name, line, message)
        return found

    def _problem(self, name: str, row: int | None, message: str) -> None:
        self.builder.add_problem(self.archive.place / name, row, message)
