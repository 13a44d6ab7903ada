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
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.images import ImageFinder, folder_of
from diptych.data.parsing import clean_text, identifier, json_object, non_empty, split_name
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
    builder = CorpusBuilder(file.parent if file.name == FILE_NAME else file)  # whose name says which people
    splits: dict[Hashable, tuple[str, int]] = {}  # of each person, and the row that told it
    for row, entry in enumerate(entries, 1):
        with builder.reading_row(file, row):
            _add(builder, finder, file, row, json_object(entry), splits)
    return builder.build()


def _add(
    builder: CorpusBuilder,
    finder: ImageFinder,
    file: Path,
    row: int,
    entry: dict[str, object],
    splits: dict[Hashable, tuple[str, int]],
) -> None:
    identity = identifier(entry.get("id"), "id")
    name = _inside(non_empty(entry.get("file_path"), "file_path"))
    split = split_name(entry.get("split"))
    captions = entry.get("captions")
    if not isinstance(captions, list):
        raise DataError("no list 'captions'")
    known, first = splits.get(identity, (split, row))
    if known != split:
        raise DataError(f"id {identity!r} is in {split}, and in {known} at row {first}; a person belongs to one split")
    path = finder.find(name)
    builder.require_unique("image", name)

    splits[identity] = known, first
    builder.add_image(name, path, identity, split)
    for number, caption in enumerate(captions, 1):
        try:
            text = clean_text(caption)
        except DataError as reason:
            builder.add_problem(file, row, f"caption {number}: {reason}")
        else:
            builder.add_text(text, identity, split)


def _inside(path: str) -> str:
    """A path in its shortest form, if it stays in the folder that it is relative to."""
    name = posixpath.normpath(path)
    parts = PureWindowsPath(name)  # it knows the separators and roots of both kinds of systems
    if parts.anchor or ".." in parts.parts:
        raise DataError(f"the file_path {path!r} leads out of the folder of photos; make it relative to it")
    return name
