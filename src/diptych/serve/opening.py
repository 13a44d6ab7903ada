"""Indexes by their names, with each model loaded once, however many indexes it made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diptych.index.encoder import Encoder
from diptych.index.entries import SearchRequest
from diptych.index.search import Searcher, encoder_of, open_store


def open_indexes(paths: Sequence[Path], run: str | None = None, device: str = "auto") -> dict[str, Searcher]:
    """The indexes in some files, asked through their own models, or all through `run`, which must be the same model."""
    stores = [open_store(path) for path in paths]
    encoders: dict[str, Encoder] = {}
    searchers: dict[str, Searcher] = {}
    for store in stores:
        identity = store.spec.identity
        if identity not in encoders:
            encoders[identity] = encoder_of(store, run, device)
        searchers[_name(store.path, searchers)] = Searcher(store, encoders[identity])
    return searchers


def warm_up(searchers: dict[str, Searcher]) -> None:
    """Ask each once: what a first question would wait for is done before somebody asks it."""
    for searcher in searchers.values():
        searcher.search_texts(["a"], SearchRequest(k=1))


def _name(path: Path, taken: dict[str, Searcher]) -> str:
    """The file's name, with a number where another file has the same."""
    name, number = path.stem, 1
    while name in taken:
        number += 1
        name = f"{path.stem}-{number}"
    return name
