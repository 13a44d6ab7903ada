"""Ranks images by their words (mode "words"), or by words and meaning (mode "both").

The words of an image are those of its captions, its name and its folder, and those that were read in the picture.
"""

from __future__ import annotations

import functools

import numpy as np

from diptych.data.corpus import Integers
from diptych.errors import DataError
from diptych.index.backend import IndexStore
from diptych.index.entries import Mode, SearchRequest
from diptych.index.exact import Pool
from diptych.index.fusion import SMOOTHING, WeightedRanking, fuse
from diptych.index.groups import new_groups
from diptych.index.query import Query
from diptych.index.query_plan import QueryPlan
from diptych.index.query_text import asks_for_exact_words, parse
from diptych.index.ranking import Candidates, Ranking
from diptych.index.word_coverage import content_words, coverage
from diptych.index.words import WordStore

_FUSED = 1000  # the best images of each ranking that are fused


def word_store(store: IndexStore, request: SearchRequest, text: str | None) -> WordStore:
    """The index as one whose words can be searched; a DataError if it or the request does not allow that."""
    if text is None:
        raise DataError(f"mode {request.mode!r} searches with words; add a text, or leave the mode out")
    if request.to != "image":
        raise DataError(f"mode {request.mode!r} finds images; search for images, or leave the mode out")
    if not isinstance(store, WordStore):
        raise DataError(f"mode {request.mode!r} needs an index in an SQLite file; leave the mode out for this index")
    return store


def resolved_mode(store: IndexStore, request: SearchRequest, text: str | None) -> Mode:
    """The mode of a request. "auto": "words" for a text in quotes, "both" if there are captions or words in pictures.

    "both" finds more than the meaning alone, even if few images have a caption (`benchmarks/probes/hybrid.py`).
    """
    if request.mode != "auto":
        return request.mode
    if text is None or request.to != "image" or not isinstance(store, WordStore):
        return "meaning"
    if asks_for_exact_words(text):
        return "words"
    return "both" if store.has_descriptions() else "meaning"


class WordPlan:
    """How texts are ranked in a pool of images in mode "words" or "both"; `plan` ranks them by meaning."""

    def __init__(self, store: IndexStore, plan: QueryPlan) -> None:
        assert isinstance(plan.pool, Pool)  # an index whose words can be searched has its vectors in memory
        self._store, self._pool, self._plan = store, plan.pool, plan

    def ranking(self, query: Query) -> Ranking:
        """The ranking of a text; a hit with all of its words stands out."""
        words, text = word_store(self._store, query.request, query.text), parse(query.text or "").wanted
        begin = functools.partial(Ranking, len(self._pool.ids), self._pool.ids_of, relative=True)
        groups = functools.partial(new_groups, self._store, self._pool, query.request)
        if query.encoding is None:
            ids, scores = words.by_words(text, every=True)
            places, rows = self._in_pool(ids)
            found = Candidates(rows, scores[places], np.full(len(places), np.inf, np.float32), False, "exact")
            return begin(lambda *_: found, groups)
        _, with_all = self._in_pool(words.with_words(" ".join(content_words(text))))
        head = max(_FUSED, 2 * query.request.k)
        by_words = self._weighted(words, text, head)
        (by_meaning,) = self._plan.rankings([query], query.encoding, head)
        fused = functools.partial(_fuse, by_words=by_words, with_all=with_all, head=head)
        ranking = begin(lambda depth, since: fused(by_meaning.extend(max(depth, head), since)), groups)
        if len(by_meaning.found.rows):
            ranking.found = fused(by_meaning.found)
        return ranking

    def _weighted(self, store: WordStore, text: str, head: int) -> WeightedRanking:
        """The rows with a word of a text, best first; what covers little of the text has little weight."""
        words = content_words(text)
        ids = store.by_words(" ".join(words), every=False)[0]
        places, rows = self._in_pool(ids)
        places, rows = places[:head], rows[:head]
        return rows, coverage(store, words, ids[places], self._store.counts()["image"]) ** 2

    def _in_pool(self, ids: Integers) -> tuple[Integers, Integers]:
        """Which of these ids are in the pool, as places in `ids`, and their rows in the pool, in the same order."""
        rows = np.searchsorted(self._pool.ids, ids)
        inside = self._pool.ids[np.minimum(rows, len(self._pool.ids) - 1)] == ids
        if self._pool.allowed is not None:
            inside &= np.isin(rows, self._pool.allowed)
        places = np.flatnonzero(inside)
        return places, rows[places]


def _fuse(by_meaning: Candidates, by_words: WeightedRanking, with_all: Integers, head: int) -> Candidates:
    """The first `head` rows of both rankings as one, then the others by meaning; those with all words stand out."""
    best = by_meaning.rows[:head]
    rows, scores = fuse([(best, np.ones(len(best), np.float32)), by_words])
    products = np.full(len(rows), -np.inf, np.float32)
    order = np.argsort(rows)
    places = np.searchsorted(rows, by_meaning.rows, sorter=order)
    known = np.isin(by_meaning.rows, rows)
    products[order[places[known]]] = by_meaning.products[known]
    ranks = np.arange(1, len(by_meaning.rows) + 1)
    scores = np.concatenate([scores, (1 / (SMOOTHING + ranks[~known])).astype(np.float32)])
    rows = np.concatenate([rows, by_meaning.rows[~known]])
    products = np.concatenate([products, by_meaning.products[~known]])
    products[np.isin(rows, with_all)] = np.inf
    return Candidates(rows, scores, products, by_meaning.more, by_meaning.method)
