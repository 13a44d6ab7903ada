"""Karpathy's split files (`dataset_flickr8k.json`, `dataset_flickr30k.json`, `dataset_coco.json`).

One object holds `images`, a list of `{"filename", "split", "sentences": [{"raw"}]}`; in COCO's an image also
has a `filepath`, its folder. Rows are counted from 1 in `images`.
"""

from __future__ import annotations

from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.corpus_builder import CorpusBuilder, filled, id_in, object_in, split_in, text_in
from diptych.data.images import ImageFinder, folder_of
from diptych.errors import DataError
from diptych.files import read_json


def read_karpathy(file: Path, images: Path | None = None) -> Corpus:
    """The corpus in a split file; its images are in `images`, else in `images/` beside it or beside it."""
    content = read_json(file, DataError)
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(f"{file}: no list 'images'; a split file is one JSON object that holds it")
    finder = ImageFinder([file.parent / "images", file.parent] if images is None else [folder_of(images)])
    gathering = CorpusBuilder(file)
    for row, entry in enumerate(entries, 1):
        with gathering.row(file, row):
            _add(gathering, finder, file, row, object_in(entry))
    return gathering.corpus()


def _add(gathering: CorpusBuilder, finder: ImageFinder, file: Path, row: int, entry: dict[str, object]) -> None:
    filename = filled(entry.get("filename"), "filename")
    split = split_in(entry.get("split"))
    sentences = entry.get("sentences")
    if not isinstance(sentences, list):
        raise DataError("no list 'sentences'")
    folder = entry.get("filepath")
    name = f"{filled(folder, 'filepath')}/{filename}" if folder else filename
    path = finder.find(name, filename)
    if "imgid" in entry:
        gathering.once("imgid", id_in(entry["imgid"], "imgid"))
    gathering.once("image", name)

    gathering.image(name, path, name, split)
    for number, sentence in enumerate(sentences, 1):
        try:
            text = text_in(object_in(sentence).get("raw"))
        except DataError as reason:
            gathering.problem(file, row, f"sentence {number}: {reason}")
        else:
            gathering.text(text, name, split)
