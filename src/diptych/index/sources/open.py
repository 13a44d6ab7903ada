"""Opens the source at an address: a folder of photos, or a corpus.

A folder is a corpus if it, or a folder train, val or test in it, contains a file with a name that `open_corpus` knows,
such as captions.csv, metadata.jsonl or dataset_*.json. Its images are then those that this file names.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.entities.archive import has_annotations
from diptych.data.file_kinds import INDEXED_SUFFIXES
from diptych.data.formats.pedes import FILE_NAME as PEDES_NAME
from diptych.data.formats.table import TABLE_SUFFIXES
from diptych.data.open import open_corpus
from diptych.data.parsing import SPLIT_NAMES
from diptych.errors import DataError
from diptych.index.sources.corpus import CorpusSource
from diptych.index.sources.folder import FolderSource
from diptych.index.sources.listing import Source
from diptych.index.sources.selection import Selection

_EVERYTHING = Selection()
_COULD_BE = (*sorted(TABLE_SUFFIXES), ".txt", ".token", ".json", ".npy")  # a fast first test of many names
_DATA_SET = re.compile(
    rf"(captions|metadata)\.(csv|tsv|jsonl|parquet|txt)|.*\.token(\.txt)?|(dataset|captions)_.*\.json|.*_ims\.npy|{PEDES_NAME}",
    re.IGNORECASE,
)


def open_source(address: str | Corpus, selection: Selection = _EVERYTHING) -> Source:
    """The source at an address: a folder, or whatever `open_corpus` understands. A corpus has to be on disk."""
    if isinstance(address, Corpus):
        raise DataError(
            f"{address.name}: an index is made of data at an address, with which it is compared when it is updated; "
            "write the images to a folder and name that"
        )
    if is_folder_of_photos(address):
        return FolderSource(Path(address).expanduser(), selection)
    if selection != _EVERYTHING:
        raise DataError(f"{address}: a corpus names its images; patterns and links are for folders of photos")
    if Path(address).suffix.lower() in INDEXED_SUFFIXES and Path(address).expanduser().is_file():
        raise DataError(f"{address}: one photo or video; name the folder that it is in")
    return CorpusSource(open_corpus(address))


def is_folder_of_photos(address: str) -> bool:
    """Whether there is a folder at an address that is not a corpus."""
    folder = Path(address).expanduser()
    return address.partition(":")[0] != "scenes" and folder.is_dir() and not _is_corpus(folder)


def source_name(address: str) -> str:
    """The default name of an index of a source."""
    if address.partition(":")[0] == "scenes":
        return "scenes"
    path = Path(os.path.abspath(Path(address.partition("#")[0]).expanduser()))  # noqa: PTH100 (it resolves `..`)
    return (path.name if path.is_dir() else path.stem) or "index"


def _is_corpus(folder: Path) -> bool:
    """Whether a folder contains a file with the name of a corpus."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (there may be very many)
        for part in names:
            if part.lower() in SPLIT_NAMES and (folder / part).is_dir():
                names = names + os.listdir(folder / part)  # noqa: PTH208
    except OSError as reason:
        raise DataError(f"{folder}: cannot be read ({reason.strerror}); check the permissions") from None
    if any(_DATA_SET.fullmatch(name) for name in names if name.endswith(_COULD_BE) and not name.startswith(".")):
        return True
    return has_annotations(folder) or any((folder / "annotations").glob("captions_*.json"))
