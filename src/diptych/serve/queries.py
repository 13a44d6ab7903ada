"""Answers a batch of questions: one pass of each tower for all, then one product an index."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diptych.errors import ScoreError
from diptych.index.encoder import Encoder, Encodings
from diptych.index.entries import Answer, Kind, SearchRequest
from diptych.index.search import Query, Searcher
from diptych.serve.batching import apart
from diptych.serve.cache import Cache
from diptych.serve.metrics import Metrics
from diptych.serve.stored import check_model, stored

Name = TypeVar("Name", str, bytes)  # of what is encoded: a text itself, or the hash of an image


@dataclass(frozen=True)
class Upload:
    """A photo by the hash of its bytes, and what the image tower reads of it, or has made of it before."""

    digest: bytes
    read: NDArray[Any] | Encodings = field(compare=False)


@dataclass(frozen=True)
class Question:
    """Something that is asked of an index: a text, a photo, or more like an entry of it."""

    index: str
    about: str | Upload | int
    ask: SearchRequest


@dataclass(frozen=True)
class Found:
    """An answer, and the captions of the images in it."""

    answer: Answer
    captions: Mapping[int, Sequence[str]]


Row = tuple[Encodings, Kind]  # one query, and what it is


class Queries:
    """Encodes and answers questions of several indexes, on one thread; `encoded` may be asked from others."""

    def __init__(self, searchers: Mapping[str, Searcher], metrics: Metrics) -> None:
        self._searchers = searchers
        self._metrics = metrics
        self._cache: Cache[tuple[str, str | bytes], Encodings] = Cache()

    def encoded(self, encoder: Encoder, digest: bytes) -> Encodings | None:
        """What a model has made of the image with this hash, if that is still kept."""
        return self._cache.get((encoder.identity, digest))

    def answer(self, questions: Sequence[Question]) -> list[Found | Exception]:
        """A result each; a question that cannot be answered has the error, and the others their answers."""
        self._metrics.batches.observe(len(questions))
        rows = self._encoded(questions)
        results: dict[Question, Found | Exception] = {}
        by_index: dict[str, list[tuple[Question, Row]]] = {}
        for question, row in zip(questions, rows, strict=True):
            if isinstance(row, Exception):
                results[question] = row
            else:
                by_index.setdefault(question.index, []).append((question, row))
        for name, own in by_index.items():
            found = apart(functools.partial(_searched, self._searchers[name]), own)
            results.update((question, result) for (question, _), result in zip(own, found, strict=True))
        return [results[question] for question in questions]

    def _encoded(self, questions: Sequence[Question]) -> list[Row | Exception]:
        encoded: dict[Question, Row | Exception] = {}
        by_model: dict[str, list[Question]] = {}
        for question in questions:
            by_model.setdefault(self._searchers[question.index].encoder.identity, []).append(question)
        for own in by_model.values():
            encoder = self._searchers[own[0].index].encoder
            encoded |= self._texts(encoder, [each for each in own if isinstance(each.about, str)])
            encoded |= self._photos(encoder, [each for each in own if isinstance(each.about, Upload)])
        for question in questions:
            if isinstance(question.about, int):
                encoded[question] = self._stored(question.index, question.about)
        return [encoded[question] for question in questions]

    def _texts(self, encoder: Encoder, questions: Sequence[Question]) -> dict[Question, Row | Exception]:
        about = {question: question.about for question in questions if isinstance(question.about, str)}
        rows = self._rows(encoder.identity, {text: text for text in about.values()}, encoder.texts)
        return {question: _of("text", rows[text]) for question, text in about.items()}

    def _photos(self, encoder: Encoder, questions: Sequence[Question]) -> dict[Question, Row | Exception]:
        about = {question: question.about for question in questions if isinstance(question.about, Upload)}
        rows = self._rows(encoder.identity, {own.digest: own.read for own in about.values()}, encoder.images)
        return {question: _of("image", rows[own.digest]) for question, own in about.items()}

    def _rows(
        self, model: str, items: Mapping[Name, Any], encode: Callable[[list[Any]], Encodings]
    ) -> dict[Name, Encodings | Exception]:
        """The encoding of each item by its name; what is not kept from before is encoded together."""
        rows: dict[Name, Encodings | Exception] = {}
        for name, item in items.items():
            kept = item if isinstance(item, Encodings) else self._cache.get((model, name))
            if kept is not None:
                rows[name] = kept
        new = [name for name in items if name not in rows]
        self._metrics.hits.inc(len(rows))
        self._metrics.misses.inc(len(new))
        encoded = apart(lambda some: _each(encode([items[name] for name in some])), new)
        for name, row in zip(new, encoded, strict=True):
            rows[name] = row
            if not isinstance(row, Exception):
                self._cache.put((model, name), row)
        return rows

    def _stored(self, index: str, entry: int) -> Row | Exception:
        try:
            return stored(self._searchers[index], entry)
        except Exception as error:
            return error


def _of(kind: Kind, row: Encodings | Exception) -> Row | Exception:
    return row if isinstance(row, Exception) else (row, kind)


def _each(encodings: Encodings) -> list[Encodings]:
    """The rows one by one, each in memory of its own, so that one that is kept does not keep its neighbours."""
    if not np.isfinite(encodings.vectors).all():
        raise ScoreError("the model makes no finite numbers of this query; is the run's model whole?")
    return [encodings.take([row]) for row in range(len(encodings))]


def _searched(searcher: Searcher, questions: Sequence[tuple[Question, Row]]) -> list[Found]:
    check_model(searcher)
    answers = searcher.search(
        [
            Query(row, kind, question.ask, question.about if isinstance(question.about, str) else None)
            for question, (row, kind) in questions
        ]
    )
    images = {hit.entry.id for answer in answers for hit in answer.hits if hit.entry.kind == "image"}
    captions = searcher.store.captions(sorted(images)) if images else {}
    return [Found(answer, captions) for answer in answers]
