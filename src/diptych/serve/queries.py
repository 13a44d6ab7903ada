"""Answers a batch of questions: one pass of each tower for all, then one product an index."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import ScoreError
from diptych.index.encoder import Encoder, Encodings
from diptych.index.entries import Answer, Ask, Kind
from diptych.index.search import Searcher
from diptych.serve.batching import apart
from diptych.serve.cache import Cache
from diptych.serve.metrics import Metrics
from diptych.serve.stored import check_model, stored


@dataclass(frozen=True, eq=False)
class Upload:
    """A photo as the image tower reads it; equal to itself alone, so that no two are compared pixel by pixel."""

    prepared: NDArray[Any]


@dataclass(frozen=True)
class Question:
    """Something that is asked of an index: a text, a photo, or more like an entry of it."""

    index: str
    about: str | Upload | int
    ask: Ask


@dataclass(frozen=True)
class Found:
    """An answer, the captions of the images in it, and the words of the question that the model does not know."""

    answer: Answer
    captions: Mapping[int, Sequence[str]]
    unknown: Sequence[str]


Row = tuple[Encodings, Kind]  # one query, and what it is


class Queries:
    """Encodes and answers questions of several indexes; used by one thread."""

    def __init__(self, searchers: Mapping[str, Searcher], metrics: Metrics) -> None:
        self._searchers = searchers
        self._metrics = metrics
        self._cache: Cache[tuple[str, str], Encodings] = Cache()

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
            encoded |= _photos(encoder, [each for each in own if isinstance(each.about, Upload)])
        for question in questions:
            if isinstance(question.about, int):
                encoded[question] = self._stored(question.index, question.about)
        return [encoded[question] for question in questions]

    def _texts(self, encoder: Encoder, questions: Sequence[Question]) -> dict[Question, Row | Exception]:
        texts = {str(question.about): question for question in questions}
        rows: dict[str, Encodings | Exception] = {}
        for text in texts:
            kept = self._cache.get((encoder.identity, text))
            if kept is not None:
                rows[text] = kept
        new = [text for text in texts if text not in rows]
        self._metrics.hits.inc(len(rows))
        self._metrics.misses.inc(len(new))
        for text, row in zip(new, apart(lambda some: _each(encoder.texts(some)), new), strict=True):
            rows[text] = row
            if not isinstance(row, Exception):
                self._cache.put((encoder.identity, text), row)
        return {question: _of("text", rows[str(question.about)]) for question in questions}

    def _stored(self, index: str, entry: int) -> Row | Exception:
        try:
            return stored(self._searchers[index], entry)
        except Exception as error:
            return error


def _photos(encoder: Encoder, questions: Sequence[Question]) -> dict[Question, Row | Exception]:
    photos = [question.about.prepared for question in questions if isinstance(question.about, Upload)]
    rows = apart(lambda some: _each(encoder.images(some)), photos)
    return {question: _of("image", row) for question, row in zip(questions, rows, strict=True)}


def _of(kind: Kind, row: Encodings | Exception) -> Row | Exception:
    return row if isinstance(row, Exception) else (row, kind)


def _each(encodings: Encodings) -> list[Encodings]:
    """The rows one by one, each in memory of its own, so that one that is kept does not keep its neighbours."""
    if not np.isfinite(encodings.vectors).all():
        raise ScoreError("the model makes no finite numbers of this query; is the run's model whole?")
    return [encodings.take([row]) for row in range(len(encodings))]


def _searched(searcher: Searcher, questions: Sequence[tuple[Question, Row]]) -> list[Found]:
    check_model(searcher)
    rows = [row for _, (row, _) in questions]
    sets = tuple(own for row in rows for own in row.sets or ())
    queries = Encodings(np.concatenate([row.vectors for row in rows]), sets or None)  # (questions, size)
    answers = searcher.search(queries, [each.ask for each, _ in questions], [kind for _, (_, kind) in questions])
    images = {hit.entry.id for answer in answers for hit in answer.hits if hit.entry.kind == "image"}
    captions = searcher.store.captions(sorted(images)) if images else {}
    found = []
    for (question, _), answer in zip(questions, answers, strict=True):
        unknown = searcher.unknown_words(question.about) if isinstance(question.about, str) else []
        found.append(Found(answer, captions, unknown))
    return found
