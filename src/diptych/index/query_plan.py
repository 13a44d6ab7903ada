"""Answers queries of one kind: candidates by inner product, re-ranked if the model asks for it, near-duplicates merged.

Scores between two images or two texts are cosines; scores between an image and a text are the model's own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.backend import IndexStore
from diptych.index.entries import Answer, Hit, Method
from diptych.index.exact import Pool, RankedRows
from diptych.index.groups import new_groups
from diptych.index.pools import EntryPool
from diptych.index.preselection import Preselector
from diptych.index.query import Cursor, Query
from diptych.index.query_text import parse
from diptych.index.ranking import Candidates, Ranking
from diptych.index.relevance import Judgement, judge, not_judged
from diptych.model import Model
from diptych.models.calibration.calibration import Calibration, LogisticFit
from diptych.models.embeddings import normalized
from diptych.models.engines.engine import Encodings

_FIRST = 16  # candidates among which the best hit is


class QueryPlan:
    """How queries of one kind are answered from a pool of entries of one kind.

    `pool` holds the entries that pass the filters, of which there is at least one. Models whose score is not an inner
    product re-rank the best `rerank` candidates, then the next as many. Hits are judged by the model's `calibration`.
    """

    def __init__(
        self,
        store: IndexStore,
        model: Model,
        pool: EntryPool,
        *,
        preselector: Preselector | None,
        rerank: int,
        calibration: Calibration | None = None,
    ) -> None:
        self._store, self._model = store, model
        self.pool, self._calibration = pool, calibration
        self._preselector, self._rerank = preselector, rerank

    def rankings(self, queries: Sequence[Query], encoded: Encodings, least: int = 0) -> list[Ranking]:
        """One ranking per query, with at least `least` candidates; the queries are of one kind and ask for one kind.

        First pages share a product, for which codes may select the candidates; later pages are exact.
        """
        cosine = _is_cosine(queries[0])
        if cosine:
            encoded = replace(encoded, vectors=normalized(encoded.vectors))
        rankings = [
            Ranking(
                len(self.pool),
                self.pool.ids_of,
                functools.partial(self.extend, query, encoded.take([row])),
                functools.partial(new_groups, self._store, self.pool, query.request),
                self._tier(query),
            )
            for row, query in enumerate(queries)
        ]
        if queries[0].request.cursor is None:
            depths = [max(least, 2 * query.request.k + 16, self._tier(query) or 0) for query in queries]
            ranked, method = self._first_products(encoded.vectors, max(depths), cosine)
            for row, (query, ranking, depth) in enumerate(zip(queries, rankings, depths, strict=True)):
                best = RankedRows(ranked[row].rows[:depth], ranked[row].scores[:depth])
                asked = min(depth, self.pool.reachable)
                ranking.found = self._candidates(query, encoded.take([row]), best, 0, asked, method)
        return rankings

    def extend(self, query: Query, encoded: Encodings, depth: int, since: int) -> Candidates:
        """At least `depth` candidates of one query by exact search, if the pool has that many; see `Ranking`."""
        tier = self._tier(query) or 1
        count = min(-(-depth // tier) * tier, self.pool.reachable)
        (best,) = self.pool.top(encoded.vectors, count, _is_cosine(query))
        return self._candidates(query, encoded, best, since, count, self.pool.method)

    def answer(self, query: Query, ranking: Ranking) -> Answer:
        """The hits of the page that a query asks for."""
        cursor = query.cursor()
        start = 0 if cursor is None else ranking.start(cursor)
        places, more = ranking.page(start, query.request.k)
        hits = self._hits(query, ranking, places)
        last = Cursor(query.digest, int(places[-1]) + 1, hits[-1].entry.id, hits[-1].score) if more else None
        return Answer(
            tuple(hits),
            any(hit.stands_out for hit in hits),
            len(self.pool),
            ranking.found.method,
            next=None if last is None else str(last),
        )

    def _hits(self, query: Query, ranking: Ranking, places: Integers) -> list[Hit]:
        found = ranking.found
        entries = self._store.entries(self.pool.ids_of(found.rows[places]))
        judged = self._judgements(query, found, places)
        return [
            Hit(entry, float(found.scores[place]), fits.fit, fits.probability, tuple(ranking.near(place).tolist()))
            for entry, place, fits in zip(entries, places.tolist(), judged, strict=True)
        ]

    def _judgements(self, query: Query, found: Candidates, places: Integers) -> list[Judgement]:
        """How well the hits at some places fit, of a page that may begin after the best hits."""
        first = np.arange(min(_FIRST, len(found.rows)))
        if query.encoding is None:
            return judge(found.products[places], np.inf, len(self.pool))
        is_mixed = query.text is None or query.request.more or query.request.less  # with photos, unlike in calibration
        if self._calibration is None or _is_cosine(query) or (query.kind == "text" and is_mixed):
            return not_judged(places)
        hits, answers = self._calibration.hits, self._calibration.answers
        best = float(self._probabilities(query, found, first, self._calibration, answers).max(initial=0))
        return judge(self._probabilities(query, found, places, self._calibration, hits), best, len(self.pool))

    def _probabilities(
        self, query: Query, found: Candidates, places: Integers, calibration: Calibration, fit: LogisticFit
    ) -> Floats:
        """The probability of each of some candidates; infinite for one that has all words of the query."""
        rows, products = found.rows[places], found.products[places]
        if query.kind == "text":
            assert query.encoding is not None
            about = calibration.describe_texts(query.encoding.vectors, [parse(query.text or "").wanted])
        else:
            texts = [entry.text or "" for entry in self._store.entries(self.pool.ids_of(rows))]
            about = calibration.describe_texts(self.pool.vectors_of(rows), texts)
        scores = np.where(np.isfinite(products), products, 0)
        return np.where(np.isfinite(products), fit.probabilities(scores, about), products)

    def _tier(self, query: Query) -> int | None:
        """How many candidates are re-ranked together; None if inner products are the scores."""
        if self._model.is_inner_product or _is_cosine(query):
            return None
        return max(self._rerank, 2 * query.request.k + 16)

    def _first_products(self, queries: Floats, count: int, cosine: bool) -> tuple[list[RankedRows], Method]:
        """The best rows by inner product: among preselected candidates, if any, and else by exact search."""
        pool, preselector = self.pool, self._preselector
        count = min(count, pool.reachable)
        if preselector is not None and isinstance(pool, Pool) and self._can_preselect(preselector, pool, cosine):
            rows = preselector.candidates(queries, 2 * count, pool.allowed)
            if all(len(found) >= count for found in rows):
                ranked = (pool.rank(query, found, count, cosine) for query, found in zip(queries, rows, strict=True))
                return list(ranked), preselector.method
        return pool.top(queries, count, cosine), pool.method

    def _can_preselect(self, preselector: Preselector, pool: Pool, cosine: bool) -> bool:
        return preselector.entries == len(pool.ids) and (not cosine or pool.is_nearly_unit)

    def _candidates(
        self, query: Query, encoded: Encodings, best: RankedRows, since: int, asked: int, method: Method
    ) -> Candidates:
        """The best rows as candidates, re-ranked tier by tier if the model asks for it, except tiers before `since`.

        There are no more if fewer were found than were `asked` for.
        """
        rows, scores, products = best.rows, best.scores.copy(), best.scores
        more, tier = asked <= len(rows) < self.pool.reachable, self._tier(query)
        if tier is not None:
            order = np.arange(len(rows))
            for begin in range(since // tier * tier, len(rows), tier):
                part = slice(begin, begin + tier)
                scores[part] = self._model_scores(query, encoded, rows[part])
                order[part] = begin + np.lexsort((rows[part], -scores[part]))
            rows, scores, products = rows[order], scores[order], products[order]
        return Candidates(rows, scores, products, more, method)

    def _model_scores(self, query: Query, encoded: Encodings, rows: Integers) -> Floats:
        """The model's own score of a query with some rows: (rows,)."""
        entries = Encodings(self.pool.vectors_of(rows), self._store.sets(self.pool.ids_of(rows)))
        images, texts = (entries, encoded) if query.kind == "text" else (encoded, entries)
        return self._model.engine.score(images, texts).ravel()


def _is_cosine(query: Query) -> bool:
    return query.kind == query.request.to
