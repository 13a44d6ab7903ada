"""Phrase localisation in a report: recall by kind of phrase, and photos with the predicted and the annotated boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.data.boxes import box_iou
from diptych.data.corpus import Corpus, Integers, Picture
from diptych.data.phrases import Mentions, find_mentions
from diptych.evaluation.localisation.phrase_metrics import PHRASE, GroundingResult
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.report.box_overlay import BOX_COLOURS
from diptych.report.elements import Measure
from diptych.report.thumbnails import data_uri, thumbnail

SIDE = 440  # pixels of a photo's longer side
PHOTOS = 3  # photos per heading
PHRASES_PER_PHOTO = len(BOX_COLOURS)  # each phrase of a photo has its own colour

_NOTE = (
    "One sentence per photo. A phrase and the region with the highest score for it have the same colour; the annotated "
    "box is dashed. A region is correct if its intersection over union with that box is at least {share:g}%; the "
    "number beside the phrase is the intersection over union."
)


@dataclass(frozen=True)
class KindRow:
    """Phrases of one kind, or all phrases: their number, recall by cutoff K in percent, and the ceiling.

    The ceiling is the recall that a perfect score would reach with the proposed regions.
    """

    name: str
    count: int
    recall: Mapping[int, Measure]
    ceiling: Measure


@dataclass(frozen=True)
class TextSpan:
    """A part of a sentence; for a phrase, `colour` is the number of its colour."""

    text: str
    colour: int | None = None


@dataclass(frozen=True)
class LocalisedPhrase:
    """A phrase, the number of its colour, its predicted box, if any, its annotated box, and the overlap of both.

    A box is left, top, width, height in pixels of the picture.
    """

    text: str
    colour: int
    correct: bool
    overlap: float | None
    predicted: tuple[float, float, float, float] | None
    annotated: tuple[float, float, float, float]


@dataclass(frozen=True)
class LocalisedPhoto:
    """A photo, by its id and a data: URI of this width and height, with a sentence and its phrases."""

    name: str
    picture: str
    size: tuple[int, int]
    sentence: Sequence[TextSpan]
    phrases: Sequence[LocalisedPhrase]


@dataclass(frozen=True)
class PhotoGroup:
    """Photos under a heading that says how they were selected."""

    heading: str
    photos: Sequence[LocalisedPhoto]


@dataclass(frozen=True)
class PhraseSection:
    """The result of phrase localisation: one row per kind, the sum of recalls, and photos with a note."""

    note: str
    rows: Sequence[KindRow]
    sum: Measure
    groups: Sequence[PhotoGroup] = ()


def phrase_section(found: GroundingResult, corpus: Corpus) -> PhraseSection:
    """The metrics on a corpus' phrases, photos whose phrases were all found, and photos with the most misses."""
    rows, total = _rows(found), _measure(found, f"{PHRASE}_sum")
    if corpus.pictures is None:
        return PhraseSection("The corpus has no pictures to show.", rows, total)
    mentioned = find_mentions(corpus)
    all_found, most_missed = _select(found, mentioned)
    groups = [
        PhotoGroup(heading, [_photo(found, mentioned, corpus, corpus.pictures, rows) for rows in selected])
        for heading, selected in (("All phrases found", all_found), ("Most phrases missed", most_missed))
        if selected
    ]
    return PhraseSection(_NOTE.format(share=100 * found.overlap), rows, total, groups)


def _measure(found: GroundingResult, name: str) -> Measure:
    return Measure(found.metrics[name], *found.intervals.bounds[name])


def _rows(found: GroundingResult) -> list[KindRow]:
    """All phrases, with intervals, then one row per kind."""
    names = {cutoff: f"{PHRASE}_r{cutoff}" for cutoff in CUTOFFS}
    every = {cutoff: _measure(found, name) for cutoff, name in names.items()}
    rows = [KindRow("all", len(found), every, _measure(found, "ceiling"))]
    for kind, metrics in found.by_kind.items():
        recall = {cutoff: Measure(metrics[name]) for cutoff, name in names.items()}
        rows.append(KindRow(kind, int(metrics["count"]), recall, Measure(metrics["ceiling"])))
    return rows


def _select(found: GroundingResult, mentioned: Mentions) -> tuple[list[Integers], list[Integers]]:
    """Rows of the measured phrases to show, grouped by sentence; at most one sentence per photo.

    The first list has sentences whose phrases were all found, the second those with the most misses. Sentences with
    more phrases come first.
    """
    texts = mentioned.texts[found.rows]
    by_sentence: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(found.images.tolist(), texts.tolist(), strict=True)):
        by_sentence.setdefault(key, []).append(row)
    by_photo: dict[int, Integers] = {}  # the sentence with the most phrases, cut to the number of colours
    for (photo, _), rows in by_sentence.items():
        if len(rows[:PHRASES_PER_PHOTO]) > len(by_photo.get(photo, ())):
            by_photo[photo] = np.array(rows[:PHRASES_PER_PHOTO])
    sentences = sorted(by_photo.values(), key=lambda rows: -len(rows))
    all_found = [rows for rows in sentences if found.is_found[rows].all()][:PHOTOS]
    by_misses = sorted(sentences, key=lambda rows: float(found.is_found[rows].mean()))
    return all_found, [rows for rows in by_misses if not found.is_found[rows].all()][:PHOTOS]


def _photo(
    found: GroundingResult, mentioned: Mentions, corpus: Corpus, pictures: Sequence[Picture], rows: Integers
) -> LocalisedPhoto:
    image, text = int(found.images[rows[0]]), corpus.texts[int(mentioned.texts[found.rows[rows[0]]])]
    photo = thumbnail(pictures[image], SIDE)
    phrase_texts = [mentioned.phrases[row] for row in found.rows[rows].tolist()]
    annotated = mentioned.boxes[found.rows[rows]].astype(np.float64)
    predicted = found.boxes[rows].astype(np.float64)
    shared = box_iou(predicted, annotated).diagonal()
    phrases = [
        LocalisedPhrase(
            phrase,
            colour,
            correct=bool(found.is_found[row]),
            overlap=float(shared[colour]) if predicted[colour].any() else None,
            predicted=_pixels(predicted[colour], photo.size) if predicted[colour].any() else None,
            annotated=_pixels(annotated[colour], photo.size),
        )
        for colour, (row, phrase) in enumerate(zip(rows.tolist(), phrase_texts, strict=True))
    ]
    sentence = phrase_spans(text, phrase_texts)
    return LocalisedPhoto(corpus.image_ids[image], data_uri(photo), photo.size, sentence, phrases)


def _pixels(box: NDArray[np.float64], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """A relative box as left, top, width, height in pixels, rounded to tenths."""
    left, top, right, bottom = (float(edge) for edge in (box * (*size, *size)).round(1))
    return left, top, round(right - left, 1), round(bottom - top, 1)


def phrase_spans(text: str, phrases: Sequence[str]) -> list[TextSpan]:
    """Split a text at its phrases; the number of a phrase is its colour. Phrases that do not occur in it are ignored.

    >>> [(span.text, span.colour) for span in phrase_spans("A dog and a cat.", ["a cat", "A dog"])]
    [('A dog', 1), (' and ', None), ('a cat', 0), ('.', None)]
    """
    lowercase = text.lower()
    taken: list[tuple[int, int, int]] = []  # start, end, colour
    for colour, phrase in enumerate(phrases):
        start = lowercase.find(phrase.lower())
        while start >= 0 and any(start < end and first < start + len(phrase) for first, end, _ in taken):
            start = lowercase.find(phrase.lower(), start + 1)
        if start >= 0 and phrase:
            taken.append((start, start + len(phrase), colour))
    spans, position = list[TextSpan](), 0
    for start, end, colour in sorted(taken):
        spans += [TextSpan(text[position:start]), TextSpan(text[start:end], colour)]
        position = end
    return [span for span in (*spans, TextSpan(text[position:])) if span.text]
