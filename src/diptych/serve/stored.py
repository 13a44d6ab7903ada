"""An entry of an index as the model saw it when it was indexed: no file is read, and nothing encoded."""

from __future__ import annotations

from diptych.errors import DataError
from diptych.index.encoder import Encodings
from diptych.index.entries import Kind
from diptych.index.search import Searcher
from diptych.index.vectors import decode, decode_set
from diptych.serve.errors import RefusedError


def check_model(searcher: Searcher) -> None:
    """Refuse an index that another model has made anew since the service began: nothing of it can be compared."""
    if searcher.store.making.identity != searcher.encoder.identity:
        raise RefusedError(503, "the index was made anew by another model meanwhile; start the service again")


def stored(searcher: Searcher, entry: int) -> tuple[Encodings, Kind]:
    """The encoding of one entry, with its set where the model keeps sets, and what it is of."""
    check_model(searcher)
    store = searcher.store
    with store.reading():
        making = store.making
        rows = store.database.rows(
            "SELECT e.kind, c.vector, c.sets FROM entries AS e JOIN contents AS c ON c.id = e.content WHERE e.id = ?",
            (entry,),
        )
    if not rows:
        raise DataError(f"no entry {entry} is in this index; it may have been removed since")
    kind, vector, own = rows[0]
    sets = None if own is None else (decode_set(own),)
    return Encodings(decode([vector], making.storage, making.size), sets), kind
