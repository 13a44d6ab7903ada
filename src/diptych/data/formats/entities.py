"""Flickr30K Entities: photos, their sentences, and where in the photo the entities are that a sentence names.

A folder holds annotations.zip (or its content, `Annotations/*.xml` and `Sentences/*.txt`) and the lists train.txt,
val.txt and test.txt, one id per line. The photo of id 12 is `12.jpg` or `12_anything.jpg`, in `images/`,
`flickr30k-images/` or the folder itself. Annotations of ids that are in no list are ignored. An XML file that cannot be
used costs its photo the boxes, never the sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Box, Corpus, Phrase
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.entities.archive import ZIP_NAME, Archive, has_annotations, open_archive
from diptych.data.entities.markup import Annotation, read_boxes, read_sentence
from diptych.data.file_kinds import IMAGE_SUFFIXES
from diptych.data.parsing import non_empty, read_lines
from diptych.errors import DataError

ORDER = 40
DESCRIPTION = "Flickr30K Entities (annotations.zip)"

_SPLITS = ("train", "val", "test")
_LINE_END = re.compile(r"\r\n?|\n")


def recognises(address: Address) -> bool:
    """A folder with annotations, or annotations.zip itself."""
    return _is_zip(address.path) or has_annotations(address.path)


def read(address: Address) -> Corpus:
    """Read a folder of annotations; a photo is a group with all its sentences."""
    folder, images = address.path.parent if _is_zip(address.path) else address.path, address.images()
    archive = open_archive(folder)
    lists = {split: file for split in _SPLITS if (file := folder / f"{split}.txt").is_file()}
    if not lists:
        raise DataError(f"{folder}: none of train.txt, val.txt and test.txt; list the ids of the photos, one per line")
    roots = [folder / "images", folder / "flickr30k-images", folder] if images is None else [images]
    reader = _EntitiesReader(CorpusBuilder(folder), archive, _PhotoFinder(roots))
    for split, file in lists.items():
        for row, line in enumerate(read_lines(file), 1):
            if line.strip():
                with reader.builder.reading_row(file, row):
                    reader.add(non_empty(line, "id"), split, file, row)
    return replace(reader.builder.build(), boxes=reader.boxes, phrases=reader.phrases)


def _is_zip(path: Path) -> bool:
    return path.name == ZIP_NAME and path.is_file()


class _PhotoFinder:
    """Finds photos by their ids: `12.jpg` comes before `12_anything.jpg`."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = [root for root in roots if root.is_dir()]
        self._by_stem: dict[str, list[Path]] = {}
        self._by_prefix: dict[str, list[Path]] = {}  # the part of the stem before the first _
        for root in self._roots:
            for file in sorted(root.iterdir()):
                if file.suffix.lower() in IMAGE_SUFFIXES:
                    self._by_stem.setdefault(file.stem, []).append(file)
                    self._by_prefix.setdefault(file.stem.partition("_")[0], []).append(file)

    def find(self, identity: str) -> Path:
        found = self._by_stem.get(identity) or self._by_prefix.get(identity) or []
        if not found:
            searched = " or ".join(str(root) for root in self._roots)
            raise DataError(f"no photo of id {identity!r} in {searched}; name their folder after a #: data#photos")
        candidates = [file for file in found if file.parent == found[0].parent]
        if len(candidates) > 1:
            names = ", ".join(file.name for file in candidates[:3])
            raise DataError(f"the photo of id {identity!r} could be any of {names}; rename all but one")
        return candidates[0]


@dataclass
class _EntitiesReader:
    """Reads photo after photo; row i of `boxes` and `phrases` is image or text i of the builder."""

    builder: CorpusBuilder
    archive: Archive
    photos: _PhotoFinder
    boxes: list[list[Box]] = field(default_factory=list)
    phrases: list[list[Phrase]] = field(default_factory=list)

    def add(self, identity: str, split: str, file: Path, row: int) -> None:
        photo = self.photos.find(identity)
        self.builder.require_unique("id", identity)
        self.builder.require_unique("photo", str(photo))
        if f"Sentences/{identity}.txt" not in self.archive:
            raise DataError(f"no Sentences/{identity}.txt in {self.archive.path}")
        sentences = self._sentences(f"Sentences/{identity}.txt")
        annotation = self._annotation(f"Annotations/{identity}.xml", file, row)
        self.builder.add_image(photo.name, photo, identity, split)
        self.boxes.append([] if annotation is None else annotation.boxes)
        unknown: set[str] = set()
        for line, text, phrases in sentences:
            self.builder.add_text(text, identity, split)
            self.phrases.append(phrases)
            for phrase in phrases:
                if annotation is not None and phrase.chain not in annotation.chains | unknown:
                    unknown.add(phrase.chain)
                    self._add_problem(f"Sentences/{identity}.txt", line, f"chain {phrase.chain} is not in the XML")

    def _sentences(self, name: str) -> list[tuple[int, str, list[Phrase]]]:
        """The usable sentences of a photo, each with its line number and its phrases."""
        # Bytes that are not UTF-8 become surrogates, so that `non_empty` refuses only the lines that have them.
        content = self.archive.read(name).decode("utf-8-sig", "surrogateescape")
        sentences = []
        for row, line in enumerate(_LINE_END.split(content), 1):
            if line.strip():
                try:
                    sentences.append((row, *read_sentence(non_empty(line, "sentence"))))
                except DataError as reason:
                    self._add_problem(name, row, str(reason))
        return sentences

    def _annotation(self, name: str, file: Path, row: int) -> Annotation | None:
        """The boxes of a photo; None if its XML file is missing or cannot be used."""
        if name not in self.archive:
            self.builder.add_problem(file, row, f"no {name} in {self.archive.path}; the photo has no boxes")
            return None
        try:
            annotation = read_boxes(self.archive.read(name))
        except DataError as reason:
            self._add_problem(name, None, f"{reason}; the photo has no boxes")
            return None
        for line, message in annotation.problems:
            self._add_problem(name, line, message)
        return annotation

    def _add_problem(self, name: str, row: int | None, message: str) -> None:
        self.builder.add_problem(self.archive.path / name, row, message)
