"""CUHK-PEDES, photos of people with descriptions (`reid_raw.json`, as published, or your own in that form).

A list of `{"id", "file_path", "split", "captions"}`, one entry per photo. The paths are relative to `imgs/` beside the
file, or to the file's own folder. All entries with the same `id` are one group: every photo of a person matches every
description of that person. Rows are counted from 1 in the list; the `processed_tokens` are not read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Hashable
from pathlib import Path, PureWindowsPath

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import clean_text, identifier, json_mentions, json_object, non_empty, split_name
from diptych.errors import DataError
from diptych.files import read_json

ORDER = 50
DESCRIPTION = "CUHK-PEDES (reid_raw.json)"
FILE_NAME = "reid_raw.json"


def recognises(address: Address) -> bool:
    """A folder with reid_raw.json, or a JSON list of entries with file paths and captions."""
    return (address.path / FILE_NAME).is_file() or json_mentions(address.path, "[", "file_path", "captions")


def read(address: Address) -> Corpus:
    """Read a file of people, or the one in a folder; a person is a group."""
    file, images = address.path, address.images()
    if file.is_dir():
        file = file / FILE_NAME
    entries = read_json(file, DataError)
    if not isinstance(entries, list):
        raise DataError(f"{file}: not a list; it must be a list of objects with id, file_path, split and captions")
    finder = ImageFinder([file.parent / "imgs", file.parent] if images is None else [images])
    builder = CorpusBuilder(file.parent if file.name == FILE_NAME else file)  # the folder's name tells more
    splits: dict[Hashable, tuple[str, int]] = {}  # the split of each person, and the first row that has it
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
    person = identifier(entry.get("id"), "id")
    name = _relative(non_empty(entry.get("file_path"), "file_path"))
    split = split_name(entry.get("split"))
    captions = entry.get("captions")
    if not isinstance(captions, list):
        raise DataError("no list 'captions'")
    known_split, first_row = splits.get(person, (split, row))
    if known_split != split:
        raise DataError(
            f"id {person!r} is in {split}, and in {known_split} at row {first_row}; a person belongs to one split"
        )
    path = finder.find(name)
    builder.require_unique("image", name)

    splits[person] = known_split, first_row
    builder.add_image(name, path, person, split)
    for number, caption in enumerate(captions, 1):
        try:
            text = clean_text(caption)
        except DataError as reason:
            builder.add_problem(file, row, f"caption {number}: {reason}")
        else:
            builder.add_text(text, person, split)


def _relative(path: str) -> str:
    """A path in its shortest form; one that leaves the folder of photos raises a DataError."""
    name = posixpath.normpath(path)
    parts = PureWindowsPath(name)  # knows the separators and roots of Windows and of POSIX
    if parts.anchor or ".." in parts.parts:
        raise DataError(f"the file_path {path!r} leads out of the folder of photos; make it relative to it")
    return name
