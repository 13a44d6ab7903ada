"""A data format: text files that end in .bars, with one image and one text per line, separated by a bar."""

from __future__ import annotations

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import clean_text, hashed_split, non_empty, read_lines

ORDER = 65  # after the built-in formats that are known by a file's name, before a plain folder
DESCRIPTION = "lines of image|text (.bars)"


def recognises(address: Address) -> bool:
    """A file whose name ends in .bars."""
    return address.path.suffix == ".bars" and address.path.is_file()


def read(address: Address) -> Corpus:
    """Read a file of lines; an image is a group."""
    file = address.path
    finder = ImageFinder([address.images() or file.parent])
    builder = CorpusBuilder(file)
    splits: dict[str, str] = {}
    for row, line in enumerate(read_lines(file), 1):
        with builder.reading_row(file, row):
            name, _, caption = line.partition("|")
            name, text = non_empty(name, "image"), clean_text(caption)
            if name not in splits:
                path = finder.find(name)
                splits[name] = hashed_split(name)
                builder.add_image(name, path, name, splits[name])
            builder.add_text(text, name, splits[name])
    return builder.build()
