"""Opening a corpus by its address: the built-in scenes, or a path whose format shows in what is there."""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import replace
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.entities.archive import ZIP_NAME, has_annotations
from diptych.data.formats.coco import caption_files, read_coco
from diptych.data.formats.entities import read_entities
from diptych.data.formats.folder import is_captioned, read_captions, read_folder
from diptych.data.formats.karpathy import read_karpathy
from diptych.data.formats.pedes import FILE_NAME as PEDES_NAME
from diptych.data.formats.pedes import is_pedes, read_pedes
from diptych.data.formats.precomputed import is_precomputed, read_precomputed
from diptych.data.formats.scenes import scenes_corpus
from diptych.data.formats.table import TABLE_SUFFIXES, read_table
from diptych.errors import DataError
from diptych.files import read_json

_UNDERSTOOD = (
    "Karpathy's dataset_*.json, COCO's captions_*.json, a table (.csv, .tsv, .jsonl, .parquet), a folder of "
    "images with captions, a folder of precomputed *_ims.npy, Flickr30K Entities (annotations.zip), CUHK-PEDES "
    "(reid_raw.json), or scenes for the built-in corpus"
)


def open_corpus(address: str | Path) -> Corpus:
    """The corpus at an address: `scenes`, `scenes:train=300,images=2`, or the path of a file or folder.

    `folder#testall` tests on the testall part of precomputed features; `folder#photos` reads Flickr30K Entities with
    the photos in another folder. A folder that is called scenes is `./scenes`.
    """
    if not str(address):
        raise DataError(f"an empty address; understood: {_UNDERSTOOD}")
    word, _, rest = str(address).partition(":")
    if word == "scenes" and isinstance(address, str):
        return replace(scenes_corpus(rest), address=address)
    path = _at_home(Path(address))
    corpus = _open_path(path, str(address))
    return corpus if corpus.address else replace(corpus, address=str(path.absolute()))


def _open_path(path: Path, address: str) -> Corpus:
    """The corpus at a path; the address is the path as it was given, to name it when nothing is there."""
    try:
        if path.is_dir():
            return _open_folder(path)
        if path.is_file():
            return _open_file(path)
        folder, mark, part = str(path).rpartition("#")
        if mark and is_precomputed(Path(folder)):
            return read_precomputed(Path(folder), test=part)
        if mark and part and has_annotations(Path(folder)):
            photos = _at_home(Path(part)).absolute()
            return replace(read_entities(Path(folder), photos), address=f"{Path(folder).absolute()}#{photos}")
        close = _close_to(path)
    except OSError as reason:
        raise DataError(f"{path}: cannot be read ({reason.strerror})") from None
    raise DataError(f"{address}: no such file or folder{close}; understood: {_UNDERSTOOD}")


def _open_folder(folder: Path) -> Corpus:
    if is_precomputed(folder):
        return read_precomputed(folder)
    if split_files := sorted(folder.glob("dataset_*.json")):
        if len(split_files) > 1:
            names = ", ".join(file.name for file in split_files)
            raise DataError(f"{folder}: several data sets ({names}); name the one to read")
        return read_karpathy(split_files[0])
    if caption_files(folder):
        return read_coco(folder)
    if has_annotations(folder):
        return read_entities(folder)
    if (folder / PEDES_NAME).is_file():
        return read_pedes(folder / PEDES_NAME)
    others = list(folder.glob("*.json"))
    if len(others) == 1 and (corpus := _open_json(others[0])):
        return corpus
    if is_captioned(folder):
        return read_folder(folder)
    raise DataError(f"{folder}: nothing in it is recognised; understood: {_UNDERSTOOD}")


def _open_file(file: Path) -> Corpus:
    suffix = file.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return read_table(file)
    if file.name == ZIP_NAME:
        return read_entities(file.parent)
    if suffix in (".txt", ".token"):
        return read_captions(file)
    if suffix == ".json" and (corpus := _open_json(file)):
        return corpus
    raise DataError(f"{file}: not recognised; understood: {_UNDERSTOOD}")


def _open_json(file: Path) -> Corpus | None:
    """The corpus in a JSON file, whatever its name; nothing if it holds none of the known forms."""
    # Inside a JSON string a quote is escaped, so these bytes are a key (or a whole string, which is rare).
    content = file.read_bytes()
    if is_pedes(content):  # first: its tokens are whole strings, and may be any word
        return read_pedes(file)
    if b'"sentences"' in content:
        return read_karpathy(file)
    if b'"annotations"' in content:
        return read_coco(file)
    read_json(file, DataError)  # a broken file is a better reason than an unknown form
    return None


def _at_home(path: Path) -> Path:
    with contextlib.suppress(RuntimeError):  # ~somebody who has no home is a name like any other
        return path.expanduser()
    return path


def _close_to(path: Path) -> str:
    """An offer of an existing path, where one is close to a path that does not exist."""
    while not path.parent.is_dir() and path.parent != path:
        path = path.parent
    names = [entry.name for entry in path.parent.iterdir()]
    if path == Path(path.name):
        names.append("scenes")
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""
