"""Opening a corpus by its address, in whichever format recognises it."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats import all_formats
from diptych.errors import DataError
from diptych.files import read_json


def open_corpus(address: str | Path) -> Corpus:
    """The corpus at an address: `scenes`, `scenes:train=300,images=2`, or the path of a file or folder.

    `path#images` names the folder of the images if they are elsewhere; `folder#testall` tests on the testall part of
    precomputed features. A folder that is called scenes is `./scenes`.
    """
    if not str(address):
        raise DataError(f"an empty address; {_known_formats()}")
    try:
        parsed = Address.parse(address)
        for data_format in all_formats():
            if data_format.recognises(parsed):
                corpus = data_format.read(parsed)
                return corpus if corpus.address else replace(corpus, address=parsed.absolute())
        raise _unrecognised(parsed, str(address))
    except OSError as reason:
        raise DataError(f"{address}: cannot be read ({reason.strerror})") from None


def _unrecognised(address: Address, written: str) -> DataError:
    path = address.path
    if path.is_dir():
        return DataError(f"{path}: nothing in it is recognised; {_known_formats()}")
    if path.is_file():
        if path.suffix.lower() == ".json":
            read_json(path, DataError)  # that it is broken is a better reason
        return DataError(f"{path}: not recognised; {_known_formats()}")
    return DataError(f"{written}: no such file or folder{_similar_path(path)}")


def _known_formats() -> str:
    descriptions = [data_format.DESCRIPTION for data_format in all_formats() if data_format.DESCRIPTION]
    return f"known formats: {', '.join(descriptions)}"


def _similar_path(path: Path) -> str:
    """A suggestion of an existing path that is close to a missing one, if there is any."""
    while not path.parent.is_dir() and path.parent != path:
        path = path.parent
    names = [entry.name for entry in path.parent.iterdir()]
    if path == Path(path.name):
        names.append("scenes")
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""
