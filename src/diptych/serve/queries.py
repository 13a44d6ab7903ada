"""Answers a batch of queries: each tower encodes all of them in one pass, and each index is searched once."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DataError, ScoreError
from diptych.index.backend import text_hash
from diptych.index.entries import Answer, Kind, SearchRequest
from diptych.index.query import Query
from diptych.index.query_encoding import encode_query_texts
from diptych.index.query_text import excludes
from diptych.index.search import Searcher
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from diptych.serve.batching import isolate_failures
from diptych.serve.errors import RequestError
from diptych.serve.metrics import Metrics

CACHED_QUERIES = 2048

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Name = TypeVar("Name", str, bytes)  # of an item to encode: a text itself, or the hash of an image


class LruCache(Generic[Key, Value]):
    """The most recently used values, up to a limit; threads may share it."""

    def __init__(self, limit: int = CACHED_QUERIES) -> None:
        self._limit = limit
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, if it is in the cache; it becomes the most recently used."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> None:
        """Store a value; the least recently used one is dropped."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._limit:
                self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class Upload:
    """An uploaded photo: the hash of its bytes, and the model's input, or its encoding if that is cached."""

    digest: bytes
    prepared: NDArray[Any] | Encodings = field(compare=False)


Subject = str | Upload | int | None


@dataclass(frozen=True)
class EncodingQuery:
    """A text, an uploaded photo, or the id of an entry, encoded by the model of an index.

    A search may have no subject: its request then names images to find more like them.
    """

    index: str
    subject: Subject

    @property
    def text(self) -> str | None:
        """The text, if it is one."""
        return self.subject if isinstance(self.subject, str) else None

    @property
    def picture(self) -> bytes | None:
        """The hash of the uploaded photo, if it is one."""
        return self.subject.digest if isinstance(self.subject, Upload) else None


@dataclass(frozen=True)
class SearchQuery(EncodingQuery):
    """A search of an index by a text, by an uploaded photo, or by the id of an entry."""

    request: SearchRequest


@dataclass(frozen=True)
class SearchResult:
    """An answer, and the captions of images by id."""

    answer: Answer
    captions: Mapping[int, Sequence[str]]


EncodedQuery = tuple[Encodings | None, Kind]  # one row, and what it encodes; no row without one
QueryResult = SearchResult | Encodings  # of a SearchQuery, and of an EncodingQuery


class QueryRunner:
    """Encodes and answers queries over several indexes, on one thread; `cached_image` may be called from others."""

    def __init__(self, searchers: Mapping[str, Searcher], metrics: Metrics) -> None:
        self._searchers = searchers
        self._metrics = metrics
        self._cache: LruCache[tuple[str, str | bytes], Encodings] = LruCache()

    def cached_image(self, model: Model, digest: bytes) -> Encodings | None:
        """The encoding of the image with this hash, if it is in the cache."""
        return self._cache.get((model.image_identity, digest))

    def run(self, queries: Sequence[EncodingQuery]) -> list[QueryResult | Exception]:
        """One result per query; a query that fails has its exception, and does not affect the others."""
        self._metrics.batches.observe(len(queries))
        results: dict[EncodingQuery, QueryResult | Exception] = {}
        by_index: dict[str, list[tuple[SearchQuery, EncodedQuery]]] = {}
        for query, encoded in zip(queries, self._encode(queries), strict=True):
            if isinstance(encoded, Exception):
                results[query] = encoded
            elif isinstance(query, SearchQuery):
                by_index.setdefault(query.index, []).append((query, encoded))
            elif encoded[0] is not None:
                results[query] = encoded[0]
        for name, group in by_index.items():
            found = isolate_failures(functools.partial(_search, self._searchers[name]), group)
            results.update((query, result) for (query, _), result in zip(group, found, strict=True))
        return [results[query] for query in queries]

    def _encode(self, queries: Sequence[EncodingQuery]) -> list[EncodedQuery | Exception]:
        encoded: dict[EncodingQuery, EncodedQuery | Exception] = {}
        by_model: dict[str, list[EncodingQuery]] = {}
        for query in queries:
            by_model.setdefault(self._searchers[query.index].model.image_identity, []).append(query)
        for group in by_model.values():
            model = self._searchers[group[0].index].model
            encoded |= self._encode_texts(model, group)
            encoded |= self._encode_photos(model, group)
        for query in queries:
            if query.subject is None:
                encoded[query] = None, "image"
            elif isinstance(query.subject, int):
                encoded[query] = self._stored(query.index, query.subject)
        return [encoded[query] for query in queries]

    def _encode_texts(
        self, model: Model, queries: Sequence[EncodingQuery]
    ) -> dict[EncodingQuery, EncodedQuery | Exception]:
        encoded: dict[EncodingQuery, EncodedQuery | Exception] = {}
        texts: dict[EncodingQuery, str] = {}
        plain: dict[EncodingQuery, str] = {}  # to encode as they are, though a search would read "-word" in them
        for query in queries:
            if isinstance(query, SearchQuery) and query.request.mode == "words":
                encoded[query] = None, "text"
            elif isinstance(query.subject, str):
                is_plain = not isinstance(query, SearchQuery) and excludes(query.subject)
                (plain if is_plain else texts)[query] = query.subject
        encode = functools.partial(encode_query_texts, model)
        rows = self._encode_items(model.image_identity, {text: text for text in texts.values()}, encode)
        encoded |= {query: _with_kind("text", rows[text]) for query, text in texts.items()}
        named = {text_hash(text): text for text in plain.values()}
        as_they_are = self._encode_items(model.image_identity, named, model.engine.encode_texts)
        return encoded | {query: _with_kind("text", as_they_are[text_hash(text)]) for query, text in plain.items()}

    def _encode_photos(
        self, model: Model, queries: Sequence[EncodingQuery]
    ) -> dict[EncodingQuery, EncodedQuery | Exception]:
        uploads = {query: query.subject for query in queries if isinstance(query.subject, Upload)}
        items = {upload.digest: upload.prepared for upload in uploads.values()}
        rows = self._encode_items(model.image_identity, items, model.engine.encode_preprocessed)
        return {query: _with_kind("image", rows[upload.digest]) for query, upload in uploads.items()}

    def _encode_items(
        self, model: str, items: Mapping[Name, Any], encode: Callable[[list[Any]], Encodings]
    ) -> dict[Name, Encodings | Exception]:
        """The encoding of each item by its name; those that are not cached are encoded together."""
        rows: dict[Name, Encodings | Exception] = {}
        for name, item in items.items():
            cached = item if isinstance(item, Encodings) else self._cache.get((model, name))
            if cached is not None:
                rows[name] = cached
        new = [name for name in items if name not in rows]
        self._metrics.cache_hits.inc(len(rows))
        self._metrics.cache_misses.inc(len(new))
        encoded = isolate_failures(lambda names: _rows(encode([items[name] for name in names])), new)
        for name, row in zip(new, encoded, strict=True):
            rows[name] = row
            if not isinstance(row, Exception):
                self._cache.put((model, name), row)
        return rows

    def _stored(self, index: str, entry: int) -> EncodedQuery | Exception:
        try:
            return stored_encoding(self._searchers[index], entry)
        except Exception as error:
            return error


def stored_encoding(searcher: Searcher, entry: int) -> tuple[Encodings, Kind]:
    """The encoding of an entry as it was indexed, and its kind; no file is read and nothing is encoded."""
    check_model(searcher)
    try:
        kind, encoding = searcher.store.encoded(entry)
    except DataError:
        raise no_such_entry(entry) from None
    return encoding, kind


def check_model(searcher: Searcher) -> None:
    """Refuse an index that another model has rebuilt since the service started: encodings cannot be compared."""
    if not searcher.model_matches:
        raise RequestError(503, "the index has been rebuilt with another model; restart the service")


def no_such_entry(entry: int) -> RequestError:
    """The error for an id without an entry; it does not reveal where the index is stored."""
    return RequestError(404, f"no entry {entry} in this index; it may have been removed")


def _with_kind(kind: Kind, row: Encodings | Exception) -> EncodedQuery | Exception:
    return row if isinstance(row, Exception) else (row, kind)


def _rows(encodings: Encodings) -> list[Encodings]:
    """The rows one by one, each with its own memory, so that a cached row does not keep the others alive."""
    if not np.isfinite(encodings.vectors).all():
        raise ScoreError("the model's encoding of the query is not finite; is the model damaged?")
    return [encodings.take([row]) for row in range(len(encodings))]


def _search(searcher: Searcher, queries: Sequence[tuple[SearchQuery, EncodedQuery]]) -> list[SearchResult]:
    check_model(searcher)
    answers = searcher.search(
        [Query(encoding, kind, query.request, query.text, query.picture) for query, (encoding, kind) in queries]
    )
    images = {hit.entry.id for answer in answers for hit in answer.hits if hit.entry.kind == "image"}
    captions = searcher.store.captions(sorted(images)) if images else {}
    return [SearchResult(answer, captions) for answer in answers]
