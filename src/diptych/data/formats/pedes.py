"""CUHK-PEDES, photos of people with descriptions (`reid_raw.json`, as published, or your own in that form).

A list of `{"id", "file_path", "split", "captions"}`, an entry a photo, beside the folder `imgs/` that the paths lead
into. Everything of one `id` is one group: any photo of a person is right for any description of that person. Rows are
counted from 1 in the list; the `processed_tokens` are not read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Hashable
from pathlib import Path, PureWindowsPath

from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder, filled, id_in, object_in, split_in, text_in
from diptych.data.images import ImageFinder, folder_of
from diptych.errors import DataError
from diptych.files import read_json

FILE_NAME = "reid_raw.json"


def is_pedes(content: bytes) -> bool:
    """Whether the content of a JSON file looks like a list of photos of people; other formats are objects."""
    begins = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    return begins and b'"file_path"' in content and b'"captions"' in content


def read_pedes(file: Path, images: Path | None = None) -> Corpus:
    """The corpus in a file; its photos are in `images`, else in `imgs/` beside it or beside it."""
    entries = read_json(file, DataError)
    if not isinstance(entries, list):
        raise DataError(f"{file}: not a list; one of people is a list of objects with id, file_path, split, captions")
    finder = ImageFinder([file.parent / "imgs", file.parent] if images is None else [folder_of(images)])
    gathering = CorpusBuilder(file.parent if file.name == FILE_NAME else file)  # whose name says which people
    splits: dict[Hashable, tuple[str, int]] = {}  # of each person, and the row that told it
    for row, entry in enumerate(entries, 1):
        with gathering.row(file, row):
            _add(gathering, finder, file, row, object_in(entry), splits)
    return gathering.corpus()


def _add(
    gathering: CorpusBuilder,
    finder: ImageFinder,
    file: Path,
    row: int,
    entry: dict[str, object],
    splits: dict[Hashable, tuple[str, int]],
) -> None:
    identity = id_in(entry.get("id"), "id")
    name = _inside(filled(entry.get("file_path"), "file_path"))
    split = split_in(entry.get("split"))
    captions = entry.get("captions")
    if not isinstance(captions, list):
        raise DataError("no list 'captions'")
    known, first = splits.get(identity, (split, row))
    if known != split:
        raise DataError(f"id {identity!r} is in {split}, and in {known} at row {first}; a person belongs to one split")
    path = finder.find(name)
    gathering.once("image", name)

    splits[identity] = known, first
    gathering.image(name, path, identity, split)
    for number, caption in enumerate(captions, 1):
        try:
            text = text_in(caption)
        except DataError as reason:
            gathering.problem(file, row, f"caption {number}: {reason}")
        else:
            gathering.text(text, identity, split)


def _inside(path: str) -> str:
    """A path in its shortest form, if it stays in the folder that it is relative to."""
    name = posixpath.normpath(path)
    parts = PureWindowsPath(name)  # it knows the separators and roots of both kinds of systems
    if parts.anchor or ".." in parts.parts:
        raise DataError(f"the file_path {path!r} leads out of the folder of photos; make it relative to it")
    return name
