"""Karpathy's split files (`dataset_flickr8k.json`, `dataset_flickr30k.json`, `dataset_coco.json`).

One object holds `images`, a list of `{"filename", "split", "sentences": [{"raw"}]}`; in COCO's, an image also has a
`filepath`, its folder. The `sentid` of a sentence is its id. The images are in `images/` beside the file, or beside the
file itself. Rows are counted from 1 in `images`.
"""

from __future__ import annotations

from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder
from diptych.data.image_finder import ImageFinder
from diptych.data.parsing import clean_text, identifier, json_mentions, json_object, non_empty, split_name
from diptych.errors import DataError
from diptych.files import read_json

ORDER = 20
DESCRIPTION = "Karpathy's dataset_*.json"


def recognises(address: Address) -> bool:
    """A folder with dataset_*.json, or a JSON object with sentences."""
    return bool(_split_files(address.path)) or json_mentions(address.path, "{", "sentences")


def read(address: Address) -> Corpus:
    """Read a split file, or the only one in a folder; an image is a group."""
    file, images = _split_file(address.path), address.images()
    content = read_json(file, DataError)
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(f"{file}: no list 'images'; a split file is one JSON object that holds it")
    finder = ImageFinder([file.parent / "images", file.parent] if images is None else [images])
    builder = CorpusBuilder(file)
    for row, entry in enumerate(entries, 1):
        with builder.reading_row(file, row):
            _add(builder, finder, file, row, json_object(entry))
    return builder.build()


def _split_files(path: Path) -> list[Path]:
    return sorted(path.glob("dataset_*.json")) if path.is_dir() else []


def _split_file(path: Path) -> Path:
    files = _split_files(path) or [path]
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise DataError(f"{path}: several data sets ({names}); name the one to read")
    return files[0]


def _add(builder: CorpusBuilder, finder: ImageFinder, file: Path, row: int, entry: dict[str, object]) -> None:
    filename = non_empty(entry.get("filename"), "filename")
    split = split_name(entry.get("split"))
    sentences = entry.get("sentences")
    if not isinstance(sentences, list):
        raise DataError("no list 'sentences'")
    folder = entry.get("filepath")
    name = f"{non_empty(folder, 'filepath')}/{filename}" if folder else filename
    path = finder.find(name, filename)
    if "imgid" in entry:
        builder.require_unique("imgid", identifier(entry["imgid"], "imgid"))
    builder.require_unique("image", name)

    builder.add_image(name, path, name, split)
    for number, sentence in enumerate(sentences, 1):
        try:
            content = json_object(sentence)
            text = clean_text(content.get("raw"))
        except DataError as reason:
            builder.add_problem(file, row, f"sentence {number}: {reason}")
        else:
            builder.add_text(text, name, split, content.get("sentid"))
