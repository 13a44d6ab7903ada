"""COCO's caption files (`captions_train2014.json`, `captions_val2017.json`, or your own in that form).

One object holds `images`, a list of `{"id", "file_name"}`, and `annotations`, a list of `{"image_id", "caption"}`. Each
file is one split, which its name tells (train if it does not); a folder of such files has all of them. The images are
in `images/`, in a folder named after the split and year (`train2014/`), or in the folder itself, each beside the file
or one level up. Rows are counted from 1 in the list in question.
"""

from __future__ import annotations

import re
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import clean_text, identifier, json_mentions, json_object, non_empty, split_name
from diptych.errors import DataError
from diptych.files import read_json

ORDER = 30
DESCRIPTION = "COCO's captions_*.json"

_SPLIT_IN_NAME = re.compile(r"(?<![a-z])(restval|train|validation|valid|val|dev|test)[0-9]*(?![a-z])")


def recognises(address: Address) -> bool:
    """A folder with captions_*.json, or a JSON object with annotations."""
    return bool(_caption_files(address.path)) or json_mentions(address.path, "{", "annotations")


def read(address: Address) -> Corpus:
    """Read a caption file, or all in a folder; an image is a group."""
    files, images = _caption_files(address.path) if address.path.is_dir() else [address.path], address.images()
    if not files:
        raise DataError(f"{address.path}: no caption file in it; name it like captions_train.json")
    builder = CorpusBuilder(address.path)
    for file in files:
        _add_file(builder, file, images, prefix_names=len(files) > 1)
    return builder.build()


def _caption_files(path: Path) -> list[Path]:
    """The caption files of a folder: `captions_*.json` in it, else in its `annotations/`."""
    return sorted(path.glob("captions_*.json")) or sorted(path.glob("annotations/captions_*.json"))


def _add_file(builder: CorpusBuilder, file: Path, images: Path | None, *, prefix_names: bool) -> None:
    content = read_json(file, DataError)
    content = content if isinstance(content, dict) else {}
    entries, annotations = content.get("images"), content.get("annotations")
    if not isinstance(entries, list) or not isinstance(annotations, list):
        raise DataError(f"{file}: no lists 'images' and 'annotations'; a caption file is an object with both")
    match = _SPLIT_IN_NAME.search(file.stem.lower())
    split, folder = (split_name(match[1]), match[0]) if match else ("train", file.stem)
    finder = ImageFinder(_image_folders(file, folder, images))
    prefix = f"{folder}/" if prefix_names else ""  # files may use the same names for images of different folders
    groups = _add_images(builder, file, entries, finder, prefix, (split, match is None))

    seen: set[int | str] = set()
    for row, entry in enumerate(annotations, 1):
        with builder.reading_row(file, row):
            annotation = json_object(entry)
            if "id" in annotation:
                if (identity := identifier(annotation["id"], "id")) in seen:
                    raise DataError(f"annotation id {identity!r} is used twice")
                seen.add(identity)
            image = identifier(annotation.get("image_id"), "image_id")
            if image not in groups:
                raise DataError(f"annotation of an image id {image!r} that is not in 'images'")
            text = clean_text(annotation.get("caption"))
            if (group := groups[image]) is not None:
                builder.add_text(text, group, split, annotation.get("id"))


def _add_images(
    builder: CorpusBuilder, file: Path, entries: list[object], finder: ImageFinder, prefix: str, split: tuple[str, bool]
) -> dict[int | str, Path | None]:
    """Add the images; returns the group of each id, None for an image that was left out with its captions.

    `split` is the split of all images, and whether it is a default.
    """
    groups: dict[int | str, Path | None] = {}
    rows: list[tuple[int, int | str, str]] = []
    names: dict[int | str, set[str]] = {}
    for row, entry in enumerate(entries, 1):
        with builder.reading_row(file, row):
            image = json_object(entry)
            identity = identifier(image.get("id"), "id")
            groups[identity] = None
            name = non_empty(image.get("file_name"), "file_name")
            names.setdefault(identity, set()).add(name)
            rows.append((row, identity, name))
    for row, identity, name in rows:
        with builder.reading_row(file, row):
            if len(names[identity]) > 1:
                raise DataError(f"id {identity!r} is used by several images; its captions could belong to any of them")
            if groups[identity] is not None:
                raise DataError(f"id {identity!r} is used twice")
            path = finder.find(name)
            builder.require_unique("image", str(path))
            builder.add_image(prefix + name, path, path, split[0], is_default=split[1])
            groups[identity] = path
    return groups


def _image_folders(file: Path, folder: str, images: Path | None) -> list[Path]:
    beside, above = file.parent, file.parent.parent
    parents = [beside / "images", beside, above / "images", above] if images is None else [images]
    return [root for parent in parents for root in (parent / folder, parent)]
