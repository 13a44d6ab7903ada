"""Answers queries of one kind: candidates by inner product, re-ranked if the model asks for it, near-duplicates merged.

Scores between two images or two texts are cosines; scores between an image and a text are the model's own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.index.backend import IndexStore
from diptych.index.duplicates import first_same_image, first_same_text
from diptych.index.entries import Answer, Hit, Kind, SearchRequest
from diptych.index.exact import Pool, RankedRows
from diptych.index.ivf import Ivf
from diptych.index.relevance import EQUAL, thresholds
from diptych.index.thumbnails import colour_grid
from diptych.index.words import WordStore
from diptych.model import Model
from diptych.models.engines.engine import Encodings

_DEEPER = 4  # factor by which the number of candidates grows if too many of them are near-duplicates

Method = Literal["exact", "ivf"]


@dataclass(frozen=True)
class Candidates:
    """Candidates of one query, best first: rows of the pool, the scores to show, and the inner products.

    `more` is whether the pool has further rows.
    """

    rows: Integers
    scores: Floats
    products: Floats
    more: bool
    method: Method

    def first(self, count: int) -> Candidates:
        """The best of them."""
        return replace(
            self, rows=self.rows[:count], scores=self.scores[:count], products=self.products[:count], more=False
        )


class QueryPlan:
    """How queries of one kind are answered from a pool of entries of one kind.

    `pool` holds the entries that pass the filters and `unfiltered` all entries of the kind. Models whose score is not
    an inner product re-rank the best `rerank` candidates.
    """

    def __init__(
        self,
        store: IndexStore,
        model: Model,
        pool: Pool,
        unfiltered: Pool,
        *,
        ivf: Ivf | None,
        query_kind: Kind,
        rerank: int,
    ) -> None:
        self._store, self._model = store, model
        self._pool, self._unfiltered = pool, unfiltered
        self._ivf, self._query_kind, self._rerank = ivf, query_kind, rerank

    def answers(self, queries: Encodings, requests: Sequence[SearchRequest]) -> list[Answer]:
        """One answer per query; all requests ask for the same kind with the same filters."""
        pool = self._pool
        if not len(pool):
            return [Answer((), False, 0) for _ in requests]
        cosine = self._query_kind == requests[0].to
        norms = np.linalg.norm(queries.vectors, axis=1).astype(np.float32)
        if cosine:
            directions = (queries.vectors / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32, copy=False)
            queries, norms = replace(queries, vectors=directions), np.ones_like(norms)
        sample_scores = pool.sample_scores(queries.vectors, cosine)
        least = self._thresholds(queries.vectors, norms, cosine, sample_scores)
        depth = max(self._depth(request) for request in requests)
        candidates = self._candidates(queries, depth, cosine, sample_scores)
        return [
            self._answer(queries.take([row]), request, found, float(threshold), depth, cosine)
            for row, (request, found, threshold) in enumerate(zip(requests, candidates, least, strict=True))
        ]

    def ranked(self, query: Encodings, depth: int) -> tuple[Candidates, float]:
        """At least `depth` candidates of one query of the other kind, and the product from which one stands out."""
        norms = np.linalg.norm(query.vectors, axis=1).astype(np.float32)
        sample_scores = self._pool.sample_scores(query.vectors, False)
        (threshold,) = self._thresholds(query.vectors, norms, False, sample_scores)
        return self._candidates(query, depth, False, sample_scores)[0], float(threshold)

    def _thresholds(self, queries: Floats, norms: Floats, cosine: bool, sample_scores: Floats) -> NDArray[np.float64]:
        """The product from which a hit stands out, per query; a filtered pool is judged by the unfiltered index."""
        unfiltered = self._unfiltered
        scores = sample_scores if unfiltered is self._pool else unfiltered.sample_scores(queries, cosine)
        if cosine:
            return np.minimum(thresholds(scores, norms, len(self._pool), unfiltered.background_of_cosines), EQUAL)
        return thresholds(scores, norms, len(self._pool), unfiltered.background)

    def _depth(self, request: SearchRequest) -> int:
        """How many candidates to take at first: some of them will be near-duplicates."""
        return 2 * min(request.k, len(self._pool)) + 16

    def _answer(
        self, query: Encodings, request: SearchRequest, found: Candidates, threshold: float, depth: int, cosine: bool
    ) -> Answer:
        """The k best distinct hits; takes more candidates until there are k of them."""
        hits = self.hits(request, found, threshold)
        while len(hits) < request.k and found.more and depth < len(self._pool):
            depth *= _DEEPER
            found = self._candidates(query, depth, cosine, None)[0]
            hits = self.hits(request, found, threshold)
        return Answer(tuple(hits), any(hit.stands_out for hit in hits), len(self._pool), found.method)

    def _candidates(
        self, queries: Encodings, depth: int, cosine: bool, sample_scores: Floats | None
    ) -> list[Candidates]:
        """At least `depth` candidates per query, if the pool has that many."""
        rescores = not self._model.is_inner_product and not cosine
        count = min(max(depth, self._rerank) if rescores else depth, len(self._pool))
        ranked, method = self._best_products(queries.vectors, count, cosine, sample_scores)
        candidates = []
        for row, found in enumerate(ranked):
            scores, products = found.scores, found.scores
            rows, more = found.rows, len(found.rows) < len(self._pool)
            if rescores:
                scores = self._model_scores(queries.take([row]), rows)
                order = np.lexsort((rows, -scores))
                rows, scores, products = rows[order], scores[order], products[order]
            candidates.append(Candidates(rows, scores, products, more, method))
        return candidates

    def _best_products(
        self, queries: Floats, count: int, cosine: bool, sample_scores: Floats | None
    ) -> tuple[list[RankedRows], Method]:
        """The best rows by inner product: from the IVF, if any, on the first attempt, and else by exact search.

        A later attempt, for more candidates, is made without `sample_scores`.
        """
        pool, ivf = self._pool, self._ivf
        if (
            ivf is not None
            and sample_scores is not None
            and ivf.header.entries == len(pool.ids)
            and (not cosine or pool.is_nearly_unit)
        ):
            rows = ivf.candidates(queries, 2 * count, pool.allowed)
            if all(len(found) >= min(count, len(pool)) for found in rows):
                ranked = (pool.rank(query, found, count, cosine) for query, found in zip(queries, rows, strict=True))
                return list(ranked), "ivf"
        return pool.top(queries, count, cosine, sample_scores), "exact"

    def _model_scores(self, query: Encodings, rows: Integers) -> Floats:
        """The model's own score of a query with some rows: (rows,)."""
        entries = Encodings(self._pool.vectors[rows], self._store.sets(self._pool.ids[rows]))
        images, texts = (entries, query) if self._query_kind == "text" else (query, entries)
        return self._model.engine.score(images, texts).ravel()

    def hits(self, request: SearchRequest, found: Candidates, threshold: float) -> list[Hit]:
        """The candidates as hits, with each near-duplicate listed under the best hit that shows the same."""
        ids = self._pool.ids[found.rows]
        contents = self._store.contents_of(ids)
        kept = np.flatnonzero(self._may_be_hits(request, ids, contents))
        first = kept[self._first_same(request.to, ids[kept], contents[kept], found.rows[kept])]
        leaders = kept[first == kept][: request.k]
        near = {int(leader): kept[(first == leader) & (kept != leader)] for leader in leaders}
        entries = self._store.entries(ids[leaders])
        return [
            Hit(entry, float(found.scores[at]), bool(found.products[at] >= threshold), tuple(ids[near[at]].tolist()))
            for entry, at in zip(entries, leaders.tolist(), strict=True)
        ]

    def _may_be_hits(self, request: SearchRequest, ids: Integers, contents: Integers) -> NDArray[np.bool_]:
        """Which of these entries the request does not exclude; a text is excluded with its image."""
        allowed = np.ones(len(ids), bool)
        if request.without is not None:
            allowed &= contents != self._store.contents_of([request.without])[0]
        if request.excluded and isinstance(self._store, WordStore):
            images = ids
            if request.to == "text":
                images = np.array([entry.image or 0 for entry in self._store.entries(ids)], np.int64)
            allowed &= ~np.isin(images, self._store.captioned(request.excluded))
        return allowed

    def _first_same(self, kind: Kind, ids: Integers, contents: Integers, rows: Integers) -> Integers:
        """For each of these entries the position of the first one that shows or says the same."""
        if kind == "text":
            return first_same_text([entry.text or "" for entry in self._store.entries(ids)])

        @functools.cache
        def colours(position: int) -> Floats:
            jpeg = self._store.thumbnail(int(ids[position]))
            return np.zeros((8, 8, 3), np.float32) if jpeg is None else colour_grid(jpeg)

        return first_same_image(contents, self._store.looks(ids), self._pool.vectors[rows], colours)
