"""A text file of captions: lines of `dog.jpg#0`, a tab and a caption, or a table with a header.

`dog.jpg#0` is the caption's id. The images are beside the file, in `images/` there, or in the only folder there. A
first folder named train, val or test in an image's name is its split; otherwise the hash that tables use decides.
"""

from __future__ import annotations

import re
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.formats.table import TABLE_SUFFIXES, add_table, has_header
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import SPLIT_NAMES, clean_text, hashed_split, non_empty, read_lines
from diptych.errors import DataError

ORDER = 70
DESCRIPTION = "a text file of captions (.txt, .token)"


def recognises(address: Address) -> bool:
    """A file whose name ends in .txt or .token."""
    return address.path.suffix.lower() in (".txt", ".token") and address.path.is_file()


def read(address: Address) -> Corpus:
    """Read a text file of captions; an image is a group."""
    file, images = address.path, address.images()
    builder = CorpusBuilder(file)
    add_captions(builder, file, file.parent if images is None else images)
    return builder.build()


def add_captions(builder: CorpusBuilder, file: Path, folder: Path, prefix: str = "", split: str | None = None) -> None:
    """Add the captions in a text file or table, with a prefix to the images' names.

    The images are in or below `folder`. `split` is the split of all of them, if given.
    """
    subfolders = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    only_subfolder = subfolders if len(subfolders) == 1 else []  # with more, two of them could hold the same name
    finder = ImageFinder([folder, folder / "images", *only_subfolder])

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
            path, image_id = finder.find(name), prefix + name
            if name != label:
                builder.require_unique("caption", prefix + label)
            if name not in splits:
                own_split = split_of(name)
                splits[name] = own_split or hashed_split(image_id)
                builder.add_image(image_id, path, image_id, splits[name], is_default=own_split is None)
            builder.add_text(text, image_id, splits[name], prefix + label if name != label else None)
