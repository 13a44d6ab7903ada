"""Answers queries by the words of captions, names and folders (mode "words"), or by words and meaning (mode "both")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diptych.data.corpus import Integers
from diptych.errors import DataError
from diptych.index.backend import IndexStore
from diptych.index.entries import Answer, SearchRequest
from diptych.index.exact import Pool
from diptych.index.fusion import fuse
from diptych.index.query_plan import Candidates, QueryPlan
from diptych.index.words import WordStore
from diptych.models.engines.engine import Encodings

_FUSED = 1000  # the best images of each ranking that are fused
_DEEPER = 4  # factor by which the number of candidates grows if too many of them are near-duplicates


def word_store(store: IndexStore, request: SearchRequest, text: str | None) -> WordStore:
    """The index as one whose words can be searched; a DataError if it or the request does not allow that."""
    if text is None:
        raise DataError(f"mode {request.mode!r} searches with words; add a text, or leave the mode out")
    if request.to != "image":
        raise DataError(f"mode {request.mode!r} finds images; search for images, or leave the mode out")
    if not isinstance(store, WordStore):
        raise DataError(f"mode {request.mode!r} needs an index in an SQLite file; leave the mode out for this index")
    return store


class WordPlan:
    """How requests of mode "words" or "both" are answered from a pool of images; `plan` ranks them by meaning."""

    def __init__(self, store: WordStore, pool: Pool, plan: QueryPlan) -> None:
        self._store, self._pool, self._plan = store, pool, plan

    def answer(self, text: str, query: Encodings | None, request: SearchRequest) -> Answer:
        """The answer for a text and, for mode "both", its encoding; a hit with all of its words stands out."""
        if not len(self._pool):
            return Answer((), False, 0)
        ids, scores = self._store.by_words(text, every=True)
        places, rows = self._in_pool(ids)
        if query is None:
            found, threshold = Candidates(rows, scores[places], np.ones(len(rows), np.float32), False, "exact"), 0.0
        else:
            found, threshold = self._fused(text, query, rows, max(_FUSED, 2 * request.k))
        hits = self._plan.hits(request, found.first(depth := 2 * request.k + 16), threshold)
        while len(hits) < request.k and depth < len(found.rows):
            depth *= _DEEPER
            hits = self._plan.hits(request, found.first(depth), threshold)
        return Answer(tuple(hits), any(hit.stands_out for hit in hits), len(self._pool), found.method)

    def _fused(self, text: str, query: Encodings, with_all: Integers, depth: int) -> tuple[Candidates, float]:
        """Both rankings as one, with the product of each row and the product from which a row stands out."""
        by_meaning, threshold = self._plan.ranked(query, depth)
        by_meaning = by_meaning.first(depth)
        by_words = self._in_pool(self._store.by_words(text, every=False)[0])[1][:depth]
        rows, scores = fuse([by_meaning.rows, by_words])
        products = np.full(len(rows), -np.inf, np.float32)
        order = np.argsort(rows)
        products[order[np.searchsorted(rows, by_meaning.rows, sorter=order)]] = by_meaning.products
        products[np.isin(rows, with_all)] = np.inf
        return Candidates(rows, scores, products, False, by_meaning.method), threshold

    def _in_pool(self, ids: Integers) -> tuple[Integers, Integers]:
        """Which of these ids are in the pool, as places in `ids`, and their rows in the pool, in the same order."""
        rows = np.searchsorted(self._pool.ids, ids)
        inside = self._pool.ids[np.minimum(rows, len(self._pool.ids) - 1)] == ids
        if self._pool.allowed is not None:
            inside &= np.isin(rows, self._pool.allowed)
        places = np.flatnonzero(inside)
        return places, rows[places]


def word_answers(
    plan: WordPlan, texts: Sequence[str], queries: Encodings | None, requests: Sequence[SearchRequest]
) -> list[Answer]:
    """One answer per text."""
    rows = [None if queries is None else queries.take([row]) for row in range(len(texts))]
    return [plan.answer(*item) for item in zip(texts, rows, requests, strict=True)]
