"""COCO's caption files (`captions_train2014.json`, `captions_val2017.json`, or your own in that form).

One object holds `images`, a list of `{"id", "file_name"}`, and `annotations`, a list of `{"image_id",
"caption"}`. A file is one split, which its name tells (train if it tells nothing); a folder of such files has
them all. Rows are counted from 1 in the list that is meant.
"""

from __future__ import annotations

import re
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.images import ImageFinder, folder_of
from diptych.data.parsing import clean_text, identifier, json_object, non_empty, split_name
from diptych.errors import DataError
from diptych.files import read_json

_SPLIT_IN_NAME = re.compile(r"(?<![a-z])(restval|train|validation|valid|val|dev|test)[0-9]*(?![a-z])")


def read_coco(source: Path, images: Path | None = None) -> Corpus:
    """The corpus in a caption file or in a folder of them.

    The images are in `images`, else in one of the usual places: `images/`, a folder named like the split and
    year (`train2014/`), or the folder itself, each beside the file or one level up.
    """
    files = caption_files(source) if source.is_dir() else [source]
    if not files:
        raise DataError(f"{source}: no caption file in it; name it like captions_train.json")
    builder = CorpusBuilder(source)
    for file in files:
        _add_file(builder, file, images, in_company=len(files) > 1)
    return builder.build()


def caption_files(folder: Path) -> list[Path]:
    """The caption files of a folder: `captions_*.json` in it, else in its `annotations/`."""
    return sorted(folder.glob("captions_*.json")) or sorted(folder.glob("annotations/captions_*.json"))


def _add_file(builder: CorpusBuilder, file: Path, images: Path | None, *, in_company: bool) -> None:
    content = read_json(file, DataError)
    content = content if isinstance(content, dict) else {}
    entries, annotations = content.get("images"), content.get("annotations")
    if not isinstance(entries, list) or not isinstance(annotations, list):
        raise DataError(f"{file}: no lists 'images' and 'annotations'; a caption file is an object with both")
    found = _SPLIT_IN_NAME.search(file.stem.lower())
    split, folder = (split_name(found[1]), found[0]) if found else ("train", file.stem)
    finder = ImageFinder(_roots(file, folder, images))
    prefix = f"{folder}/" if in_company else ""  # files may use the same names for images of different folders
    groups = _add_images(builder, file, entries, finder, prefix, split)

    seen: set[int | str] = set()
    for row, entry in enumerate(annotations, 1):
        with builder.reading_row(file, row):
            annotation = json_object(entry)
            if "id" in annotation:
                if (identity := identifier(annotation["id"], "id")) in seen:
                    raise DataError(f"annotation id {identity!r} is there twice")
                seen.add(identity)
            image = identifier(annotation.get("image_id"), "image_id")
            if image not in groups:
                raise DataError(f"annotation of an image id {image!r} that is not in 'images'")
            text = clean_text(annotation.get("caption"))
            if (group := groups[image]) is not None:
                builder.add_text(text, group, split)


def _add_images(
    builder: CorpusBuilder, file: Path, entries: list[object], finder: ImageFinder, prefix: str, split: str
) -> dict[int | str, Path | None]:
    """Gather the images; the group of each id, or None for an image that was left out with its captions."""
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
                raise DataError(f"id {identity!r} is used by several images; whose the captions are is unknown")
            if groups[identity] is not None:
                raise DataError(f"id {identity!r} is there twice")
            path = finder.find(name)
            builder.require_unique("image", str(path))
            builder.add_image(prefix + name, path, path, split)
            groups[identity] = path
    return groups


def _roots(file: Path, folder: str, images: Path | None) -> list[Path]:
    beside, above = file.parent, file.parent.parent
    places = [beside / "images", beside, above / "images", above] if images is None else [folder_of(images)]
    return [root for place in places for root in (place / folder, place)]
