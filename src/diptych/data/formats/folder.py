"""A folder of images with captions beside them, for who has no data set file.

Either each image has its texts in a file of the same name (`dog.jpg`, `dog.txt`, a text a line; images that
differ in the ending only share their texts), or one file in the folder has them all: a table named `captions`
or `metadata` (or the only table there), or lines of `dog.jpg#0`, a tab and a caption. Folders named train,
val and test are splits; elsewhere the hash that tables use decides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from diptych.data.corpus import SPLITS, Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.formats.table import TABLE_SUFFIXES, add_table, has_header
from diptych.data.images import IMAGE_SUFFIXES, ImageFinder, folder_of
from diptych.data.parsing import SPLIT_NAMES, clean_text, hashed_split, non_empty, read_lines
from diptych.errors import DataError

_REMEDY = "put the texts of dog.jpg in dog.txt beside it, or all of them in captions.csv (columns image, text)"


def read_folder(folder: Path) -> Corpus:
    """The corpus in a folder of images, or in its folders train, val and test."""
    builder = CorpusBuilder(folder)
    parts = [] if _captions_file(folder) else _split_folders(folder)
    for part in parts:
        _add(builder, part, prefix=f"{part.name}/", split=SPLIT_NAMES[part.name.lower()])
    if not parts:
        _add(builder, folder)
    elif beside := sum(name.suffix.lower() in IMAGE_SUFFIXES for name in folder.iterdir()):
        names = ", ".join(part.name for part in parts)
        builder.add_problem(folder, None, f"{beside} images beside the folders {names} are left out")
    return builder.build(remedy=_REMEDY)


def read_captions(file: Path, images: Path | None = None) -> Corpus:
    """The corpus in a text file of captions, with its images in `images`, else beside the file."""
    builder = CorpusBuilder(file)
    _add_captions(builder, file, file.parent if images is None else folder_of(images))
    return builder.build()


def is_captioned(folder: Path) -> bool:
    """Whether a folder holds captions or images, so that it is worth reading."""
    return bool(_captions_file(folder) or any(images for _, images, _ in _walk(folder)))


def _split_folders(folder: Path) -> list[Path]:
    parts = [entry for entry in folder.iterdir() if entry.name.lower() in SPLIT_NAMES and entry.is_dir()]
    return sorted(parts, key=lambda part: (SPLITS.index(SPLIT_NAMES[part.name.lower()]), part.name))


def _captions_file(folder: Path) -> Path | None:
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
        _add_captions(builder, file, folder, prefix, split)
    else:
        _add_pairs(builder, folder, prefix, split)


def _add_captions(builder: CorpusBuilder, file: Path, folder: Path, prefix: str = "", split: str | None = None) -> None:
    """Gather one file's captions: lines of `dog.jpg#0`, a tab and a caption, or a table."""
    inside = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    only = inside if len(inside) == 1 else []  # with more, two of them could hold the same name
    finder = ImageFinder([folder, folder / "images", *only])

    def split_of(name: str) -> str | None:
        return split or SPLIT_NAMES.get(name.partition("/")[0].lower())

    lines = [] if file.suffix.lower() in TABLE_SUFFIXES else read_lines(file)
    if not lines or has_header(lines[0]):
        add_table(builder, file, finder, prefix=prefix, split_of=split_of)
        return
    splits: dict[str, str] = {}
    for row, line in enumerate(lines, 1):
        if not line.strip():
            continue
        with builder.reading_row(file, row):
            label, tab, caption = line.partition("\t")
            if not tab:
                raise DataError("no tab between the image's name and the caption")
            label, text = non_empty(label, "image"), clean_text(caption)
            name = re.sub(r"#[0-9]+$", "", label)
            path, whole = finder.find(name), prefix + name
            if name != label:
                builder.require_unique("caption", prefix + label)
            if name not in splits:
                splits[name] = split_of(name) or hashed_split(whole)
                builder.add_image(whole, path, whole, splits[name])
            builder.add_text(text, whole, splits[name])


def _add_pairs(builder: CorpusBuilder, folder: Path, prefix: str, split: str | None) -> None:
    """Gather images with the text files of their names."""
    for stem, images, text_file in _walk(folder):
        group = prefix + stem.relative_to(folder).as_posix()
        here = split or hashed_split(group.encode(errors="backslashreplace").decode())
        for image in images:
            with builder.reading_row(image, None):
                name = non_empty(image.relative_to(folder).as_posix(), "name")
                builder.add_image(prefix + name, image, group, here)
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
                builder.add_text(clean_text(line), group, here)


def _walk(folder: Path) -> Iterator[tuple[Path, list[Path], Path | None]]:
    """All names below a folder without their endings, each with its images and its text file."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        stems: dict[Path, tuple[list[Path], list[Path]]] = {}
        for file in sorted(Path(here, name) for name in files if not name.startswith(".")):
            kind = 0 if file.suffix.lower() in IMAGE_SUFFIXES else 1 if file.suffix.lower() == ".txt" else None
            if kind is not None:
                stems.setdefault(file.with_suffix(""), ([], []))[kind].append(file)
        for stem, (images, texts) in stems.items():
            yield stem, images, texts[0] if texts else None
