"""A folder of images with captions beside them.

Either each image has its texts in a file of the same name (`dog.jpg`, `dog.txt`, one text per line; images that differ
only in the ending share their texts), or one file in the folder has them all: a table named `captions` or `metadata`
(or the only table there), or a text file of captions. Folders named train, val and test are splits; otherwise the hash
that tables use decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import SPLITS, Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.file_kinds import IMAGE_SUFFIXES
from diptych.data.formats.captions import add_captions
from diptych.data.formats.table import TABLE_SUFFIXES
from diptych.data.parsing import SPLIT_NAMES, clean_text, hashed_split, non_empty, read_lines
from diptych.errors import DataError

ORDER = 90  # last: almost every folder has an image somewhere
DESCRIPTION = "a folder of images with captions"

_REMEDY = "put the texts of dog.jpg in dog.txt beside it, or all of them in captions.csv (columns image, text)"


def recognises(address: Address) -> bool:
    """A folder with a captions file, or with images anywhere below it."""
    folder = address.path
    return folder.is_dir() and bool(_captions_file(folder) or any(images for _, images, _ in _walk(folder)))


def read(address: Address) -> Corpus:
    """Read a folder of images, or its folders train, val and test."""
    folder = address.path
    if address.option is not None:
        raise DataError(f"{folder}: a folder of images has its images inside; name it without #{address.option}")
    builder = CorpusBuilder(folder)
    parts = [] if _captions_file(folder) else _split_folders(folder)
    for part in parts:
        _add(builder, part, prefix=f"{part.name}/", split=SPLIT_NAMES[part.name.lower()])
    if not parts:
        _add(builder, folder)
    elif beside := sum(entry.suffix.lower() in IMAGE_SUFFIXES for entry in folder.iterdir()):
        names = ", ".join(part.name for part in parts)
        builder.add_problem(folder, None, f"{beside} images beside the folders {names} are left out")
    return builder.build(remedy=_REMEDY)


def _split_folders(folder: Path) -> list[Path]:
    parts = [entry for entry in folder.iterdir() if entry.name.lower() in SPLIT_NAMES and entry.is_dir()]
    return sorted(parts, key=lambda part: (SPLITS.index(SPLIT_NAMES[part.name.lower()]), part.name))


def _captions_file(folder: Path) -> Path | None:
    """The one file that holds the captions of all images, if there is one."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    tables = [file for file in files if file.suffix.lower() in TABLE_SUFFIXES]
    texts = [file for file in files if file.suffix.lower() == ".txt"]
    found = [file for file in [*tables, *texts] if file.stem.lower() in ("captions", "metadata")]
    found += [file for file in files if file.name.lower().endswith((".token", ".token.txt"))]
    if not found and not texts:
        found = tables
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise DataError(f"{folder}: several files could hold the captions ({names}); name the one to read")
    return found[0] if found else None


def _add(builder: CorpusBuilder, folder: Path, prefix: str = "", split: str | None = None) -> None:
    if (file := _captions_file(folder)) is not None:
        add_captions(builder, file, folder, prefix, split)
    else:
        _add_images_with_texts(builder, folder, prefix, split)


def _add_images_with_texts(builder: CorpusBuilder, folder: Path, prefix: str, split: str | None) -> None:
    """Add images with the text files of their names."""
    for stem, images, text_file in _walk(folder):
        group = prefix + stem.relative_to(folder).as_posix()
        group_split = split or hashed_split(group.encode(errors="backslashreplace").decode())
        for image in images:
            with builder.reading_row(image, None):
                name = non_empty(image.relative_to(folder).as_posix(), "name")
                builder.add_image(prefix + name, image, group, group_split, is_default=split is None)
        if text_file is None:
            continue
        if not images:
            builder.add_problem(text_file, None, "no image of this name beside it")
            continue
        lines = [(row, line) for row, line in enumerate(read_lines(text_file), 1) if line.strip()]
        if not lines:
            builder.add_problem(text_file, None, "no text in it")
        for row, line in lines:
            with builder.reading_row(text_file, row):
                builder.add_text(clean_text(line), group, group_split)


def _walk(folder: Path) -> Iterator[tuple[Path, list[Path], Path | None]]:
    """All file names below a folder without their endings, each with its images and its text file, if any."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        stems: dict[Path, tuple[list[Path], list[Path]]] = {}
        for file in sorted(Path(parent, name) for name in files if not name.startswith(".")):
            suffix = file.suffix.lower()
            if suffix in IMAGE_SUFFIXES or suffix == ".txt":
                images, texts = stems.setdefault(file.with_suffix(""), ([], []))
                (texts if suffix == ".txt" else images).append(file)
        for stem, (images, texts) in stems.items():
            yield stem, images, texts[0] if texts else None
