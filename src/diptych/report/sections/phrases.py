"""Phrase localisation in a report: recall by kind of phrase, and photos with the regions that were chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.data.boxes import box_iou
from diptych.data.corpus import Corpus, Integers, Picture
from diptych.data.phrases import Mentions, find_mentions
from diptych.evaluation.localisation.phrase_metrics import PHRASE, GroundingResult
from diptych.evaluation.metrics.recall import CUTOFFS
from diptych.report.pictures import HUES, data_uri, small_picture
from diptych.report.run_page import FoundPhrase, KindRow, LocatedPhoto, Measure, PhotoGroup, PhraseSection, Piece

SIDE = 440  # pixels of a photo's longer side
PHOTOS = 3  # of each heading
MOST = len(HUES)  # phrases of a photo that are drawn: each has a colour of its own

_NOTE = (
    "A sentence of each photo: a phrase and the region that scores highest for it have the same colour, and the box "
    "that the data has for it is dashed. A region is right where it shares at least {share:g}% of what it and that box "
    "cover; the number tells how much it does."
)


def phrase_section(found: GroundingResult, corpus: Corpus) -> PhraseSection:
    """What was measured on a corpus' phrases, and some photos where all was found, and where most was missed."""
    rows, total = _rows(found), _measure(found, f"{PHRASE}_sum")
    if corpus.pictures is None:
        return PhraseSection("The data has no pictures to show.", rows, total)
    said = find_mentions(corpus)
    groups = [
        PhotoGroup(heading, [_photo(found, said, corpus, corpus.pictures, own) for own in chosen])
        for heading, chosen in zip(("Found", "Missed"), _chosen(found, said), strict=True)
        if chosen
    ]
    return PhraseSection(_NOTE.format(share=100 * found.overlap), rows, total, groups)


def _measure(found: GroundingResult, name: str) -> Measure:
    return Measure(found.metrics[name], *found.intervals.bounds[name])


def _rows(found: GroundingResult) -> list[KindRow]:
    """All phrases, with intervals, then each kind."""
    names = {cutoff: f"{PHRASE}_r{cutoff}" for cutoff in CUTOFFS}
    every = {cutoff: _measure(found, name) for cutoff, name in names.items()}
    rows = [KindRow("all", len(found), every, _measure(found, "ceiling"))]
    for kind, own in found.by_kind.items():
        recall = {cutoff: Measure(own[name]) for cutoff, name in names.items()}
        rows.append(KindRow(kind, int(own["count"]), recall, Measure(own["ceiling"])))
    return rows


def _chosen(found: GroundingResult, said: Mentions) -> tuple[list[Integers], list[Integers]]:
    """Rows of the measured phrases to show, those of one text in one photo together; each photo is shown once.

    First texts all of whose phrases were found, then those with the most misses; of several those with more phrases.
    """
    texts = said.texts[found.rows]
    together: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(found.images.tolist(), texts.tolist(), strict=True)):
        together.setdefault(key, []).append(row)
    of_photo: dict[int, Integers] = {}  # the text with the most phrases, but not more than there are colours
    for (photo, _), rows in together.items():
        if len(rows[:MOST]) > len(of_photo.get(photo, ())):
            of_photo[photo] = np.array(rows[:MOST])
    photos = sorted(of_photo.values(), key=lambda rows: -len(rows))
    best = [rows for rows in photos if found.found[rows].all()][:PHOTOS]
    missing = sorted(photos, key=lambda rows: float(found.found[rows].mean()))
    return best, [rows for rows in missing if not found.found[rows].all()][:PHOTOS]


def _photo(
    found: GroundingResult, said: Mentions, corpus: Corpus, pictures: Sequence[Picture], rows: Integers
) -> LocatedPhoto:
    image, text = int(found.images[rows[0]]), corpus.texts[int(said.texts[found.rows[rows[0]]])]
    small = small_picture(pictures[image], SIDE)
    words = [said.phrases[row] for row in found.rows[rows].tolist()]
    truths, chosen = said.boxes[found.rows[rows]].astype(np.float64), found.boxes[rows].astype(np.float64)
    shared = box_iou(chosen, truths).diagonal()
    phrases = [
        FoundPhrase(
            phrase,
            hue,
            right=bool(found.found[row]),
            overlap=float(shared[hue]) if chosen[hue].any() else None,
            box=_pixels(chosen[hue], small.size) if chosen[hue].any() else None,
            truth=_pixels(truths[hue], small.size),
        )
        for hue, (row, phrase) in enumerate(zip(rows.tolist(), words, strict=True))
    ]
    return LocatedPhoto(corpus.image_ids[image], data_uri(small), small.size, pieces(text, words), phrases)


def _pixels(box: NDArray[np.float64], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """A relative box as left, top, width, height in pixels, tenths being enough."""
    left, top, right, bottom = (float(edge) for edge in (box * (*size, *size)).round(1))
    return left, top, round(right - left, 1), round(bottom - top, 1)


def pieces(text: str, phrases: Sequence[str]) -> list[Piece]:
    """A text in pieces, its phrases each with the number of their colour; one that is not said word for word has none.

    >>> [(piece.text, piece.hue) for piece in pieces("A dog and a cat.", ["a cat", "A dog"])]
    [('A dog', 1), (' and ', None), ('a cat', 0), ('.', None)]
    """
    low = text.lower()
    taken: list[tuple[int, int, int]] = []  # start, end, hue
    for hue, phrase in enumerate(phrases):
        start = low.find(phrase.lower())
        while start >= 0 and any(start < end and first < start + len(phrase) for first, end, _ in taken):
            start = low.find(phrase.lower(), start + 1)
        if start >= 0 and phrase:
            taken.append((start, start + len(phrase), hue))
    found, at = list[Piece](), 0
    for start, end, hue in sorted(taken):
        found += [Piece(text[at:start]), Piece(text[start:end], hue)]
        at = end
    return [piece for piece in (*found, Piece(text[at:])) if piece.text]
