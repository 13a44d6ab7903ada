"""An entry of an index as the model saw it when it was indexed: no file is read, and nothing encoded."""

from __future__ import annotations

from diptych.errors import DataError
from diptych.index.encoder import Encodings
from diptych.index.entries import Kind
from diptych.index.search import Searcher
from diptych.serve.errors import RefusedError


def check_model(searcher: Searcher) -> None:
    """Refuse an index that another model has made anew since the service began: nothing of it can be compared."""
    if searcher.store.spec.identity != searcher.encoder.identity:
        raise RefusedError(503, "the index was made anew by another model meanwhile; start the service again")


def stored(searcher: Searcher, entry: int) -> tuple[Encodings, Kind]:
    """The encoding of one entry, with its set where the model keeps sets, and what it is of."""
    check_model(searcher)
    try:
        kind, encoded = searcher.store.encoded(entry)
    except DataError:
        raise missing(entry) from None
    return encoded, kind


def missing(entry: int) -> RefusedError:
    """What to say of an entry that is not there; where the index lies is nobody's business."""
    return RefusedError(404, f"no entry {entry} is in this index; it may have been removed since")
