"""How queries with one aim are answered: a product, the model's own score, one hit for all that show the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.index.duplicates import same_images, same_texts
from diptych.index.encoder import Encoder, Encodings
from diptych.index.entries import Answer, Entry, Hit, Kind, SearchRequest
from diptych.index.exact import Found, Pool
from diptych.index.ivf import Ivf
from diptych.index.relevance import EQUAL, bars
from diptych.index.sqlite.store import Store
from diptych.index.thumbnails import colours

_DEEPER = 4  # times as many candidates, where too many of them show the same


@dataclass(frozen=True)
class _Candidates:
    """What a query may be answered with, best first: rows of the pool, the scores to show, and the products.

    `more` says whether the pool has others.
    """

    rows: Integers
    scores: Floats
    products: Floats
    more: bool
    method: Literal["exact", "ivf"]


class QueryPlan:
    """What queries of one kind want: entries of a pool, all of the same kind, and how they are found."""

    def __init__(
        self, store: Store, encoder: Encoder, pool: Pool, whole: Pool, ivf: Ivf | None, of: Kind, reranked: int
    ) -> None:
        self._store, self._encoder = store, encoder
        self._pool, self._whole = pool, whole  # what the filters let through, and all of the kind
        self._ivf, self._of, self._reranked = ivf, of, reranked

    def answers(self, queries: Encodings, asks: Sequence[SearchRequest]) -> list[Answer]:
        """An answer to each query; all of them ask for the same kind under the same filters."""
        pool = self._pool
        if not len(pool):
            return [Answer((), False, 0) for _ in asks]
        cosine = self._of == asks[0].to
        lengths = np.linalg.norm(queries.vectors, axis=1).astype(np.float32)
        if cosine:
            directions = (queries.vectors / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32, copy=False)
            queries, lengths = replace(queries, vectors=directions), np.ones_like(lengths)
        sampled = pool.sample_scores(queries.vectors, cosine)
        least = self._bars(queries.vectors, lengths, cosine, sampled)
        depth = max(self._depth(ask) for ask in asks)
        found = self._candidates(queries, depth, cosine, sampled)
        return [
            self._answer(queries.take([place]), ask, own, float(bar), depth, cosine)
            for place, (ask, own, bar) in enumerate(zip(asks, found, least, strict=True))
        ]

    def _bars(self, queries: Floats, lengths: Floats, cosine: bool, sampled: Floats) -> NDArray[np.float64]:
        """What a hit must score to stand out: a few that a filter leaves are judged by the whole index."""
        whole = self._whole
        scores = sampled if whole is self._pool else whole.sample_scores(queries, cosine)
        if cosine:
            return np.minimum(bars(scores, lengths, len(self._pool), whole.reference_of_cosines), EQUAL)
        return bars(scores, lengths, len(self._pool), whole.reference)

    def _depth(self, ask: SearchRequest) -> int:
        return 2 * min(ask.k, len(self._pool)) + 16

    def _answer(
        self, query: Encodings, ask: SearchRequest, found: _Candidates, bar: float, depth: int, cosine: bool
    ) -> Answer:
        """The k best that show different things; candidates are taken from further below until there are so many."""
        hits = self._hits(ask, found, bar)
        while len(hits) < ask.k and found.more and depth < len(self._pool):
            depth *= _DEEPER
            found = self._candidates(query, depth, cosine, None)[0]
            hits = self._hits(ask, found, bar)
        return Answer(tuple(hits), any(hit.stands_out for hit in hits), len(self._pool), found.method)

    def _candidates(self, queries: Encodings, depth: int, cosine: bool, sampled: Floats | None) -> list[_Candidates]:
        """At least so many candidates of each query, if there are so many."""
        rescores = self._encoder.rescores and not cosine
        wanted = min(max(depth, self._reranked) if rescores else depth, len(self._pool))
        founds, method = self._drawn_up(queries.vectors, wanted, cosine, sampled)
        out = []
        for place, found in enumerate(founds):
            scores, products = found.scores, found.scores
            rows, more = found.rows, len(found.rows) < len(self._pool)
            if rescores:
                scores = self._own_scores(queries.take([place]), rows)
                order = np.lexsort((rows, -scores))
                rows, scores, products = rows[order], scores[order], products[order]
            out.append(_Candidates(rows, scores, products, more, method))
        return out

    def _drawn_up(
        self, queries: Floats, wanted: int, cosine: bool, sampled: Floats | None
    ) -> tuple[list[Found], Literal["exact", "ivf"]]:
        """The best by product; by way of the cells only for a first look, which has the sampled scores."""
        pool, ivf = self._pool, self._ivf
        if (
            ivf is not None
            and sampled is not None
            and ivf.made.entries == len(pool.ids)
            and (not cosine or pool.nearly_unit)
        ):
            rows = ivf.candidates(queries, 2 * wanted, pool.chosen)
            if all(len(own) >= min(wanted, len(pool)) for own in rows):
                ranked = (pool.ranked(query, own, wanted, cosine) for query, own in zip(queries, rows, strict=True))
                return list(ranked), "ivf"
        return pool.top(queries, wanted, cosine, sampled), "exact"

    def _own_scores(self, query: Encodings, rows: Integers) -> Floats:
        """The model's own score of a query with some rows: (rows,)."""
        entries = Encodings(self._pool.vectors[rows], self._store.sets(self._pool.ids[rows]))
        images, texts = (entries, query) if self._of == "text" else (query, entries)
        return self._encoder.score(images, texts).ravel()

    def _hits(self, ask: SearchRequest, found: _Candidates, bar: float) -> list[Hit]:
        """The candidates as hits, each of those that show the same below the best of them."""
        ids = self._pool.ids[found.rows]
        contents = self._store.contents_of(ids)
        here = np.arange(len(ids))
        if ask.without is not None:
            here = np.flatnonzero(contents != self._store.contents_of([ask.without])[0])
        first = here[self._same(ask.to, ids[here], contents[here], found.rows[here])]
        leaders = here[first == here][: ask.k]
        near = {int(leader): here[(first == leader) & (here != leader)] for leader in leaders}
        entries = self._store.entries(ids[leaders])
        return [
            Hit(entry, float(found.scores[at]), bool(found.products[at] >= bar), tuple(ids[near[at]].tolist()))
            for entry, at in zip(entries, leaders.tolist(), strict=True)
        ]

    def _same(self, kind: Kind, ids: Integers, contents: Integers, rows: Integers) -> Integers:
        if kind == "text":
            return same_texts([_text(entry) for entry in self._store.entries(ids)])

        @functools.cache
        def shown(place: int) -> Floats:
            jpeg = self._store.thumbnail(int(ids[place]))
            return np.zeros((8, 8, 3), np.float32) if jpeg is None else colours(jpeg)

        return same_images(contents, self._store.looks(ids), self._pool.vectors[rows], shown)


def _text(entry: Entry) -> str:
    return entry.text or ""
