"""Queries as people type them, made from captions: words, short phrases and whole captions, and the photos they match.

A photo matches a query if its captions have all of the query's content words, in any order. With several captions per
photo, two of them must; a photo with one such caption may show the thing or not, so it is left out. A sentence need not
be said in the same words: its photos are those whose captions, taken together, have most of its words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.data.corpus import Floats, Integers
from diptych.text.noun_phrases import FUNCTION_WORDS

LONGEST = 5  # words of a phrase
SEVERAL = 3  # captions per photo from which two must agree
SENTENCE = 4  # content words from which a query is a sentence
MOST, FEW = 0.6, 0.3  # shares of a sentence's words from which a photo matches, and up to which it does not
_TINY = 1e-4  # that sums of float32 may be off
_SHARES = {"word": 0.43, "phrase": 0.4, "caption": 0.17}
_WORD = re.compile(r"[^\W_]+")
_PLURALS = (("ies", "y"), ("ves", "f"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"))


class CaptionIndex:
    """Finds the photos whose captions match a query; `owners` are the photos of the captions, numbered from 0."""

    def __init__(self, captions: Sequence[str], owners: Integers, photos: int) -> None:
        self.captions, self.owners, self._photos = captions, owners, photos
        self._places: dict[str, set[int]] = defaultdict(set)
        for place, caption in enumerate(captions):
            for word in content_words(caption):
                self._places[word].add(place)
        self._photos_of = {word: np.unique(owners[list(places)]) for word, places in self._places.items()}
        self._agreeing = 2 if len(captions) >= SEVERAL * photos else 1

    def mentions(self, query: str) -> Integers:
        """The number of captions of each photo that have the words of a query: (photos,)."""
        words = content_words(query)
        places = set.intersection(*(self._places.get(word, set()) for word in words)) if words else set()
        return np.bincount(self.owners[sorted(places)], minlength=self._photos)

    def matches(self, query: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which photos match a query, and which may match it: (photos,) each."""
        words = content_words(query)
        if len(words) >= SENTENCE:
            share = self._said(words)
            return share > MOST - _TINY, share > FEW + _TINY
        counts = self.mentions(query)
        # A long query describes its own photo, and other captions of the photo use other words.
        needed = 1 if len(words) >= SEVERAL else self._agreeing
        return counts >= needed, counts > 0

    def _said(self, words: frozenset[str]) -> Floats:
        """The share of some words that the captions of each photo have: (photos,)."""
        shares = np.zeros(self._photos, np.float32)
        for word in words & self._photos_of.keys():
            shares[self._photos_of[word]] += 1 / len(words)
        return shares

    def draw(self, count: int, random: np.random.Generator) -> list[str]:
        """That many queries, drawn from the captions, so that words that people use often are drawn often."""
        kinds = random.choice(list(_SHARES), count, p=list(_SHARES.values()))
        places = random.integers(len(self.captions), size=count)
        return [
            query
            for kind, place in zip(kinds, places.tolist(), strict=True)
            if (query := _cut(self.captions[place].lower(), kind, random))
        ]


def content_words(text: str) -> frozenset[str]:
    """The words of a text that say what it shows, with plurals as singulars."""
    return frozenset(_singular(word) for word in _WORD.findall(text.lower()) if word not in FUNCTION_WORDS)


def _cut(caption: str, kind: str, random: np.random.Generator) -> str:
    """A part of a caption, which begins and ends with a content word; empty if it has none."""
    words = _WORD.findall(caption)
    places = [place for place, word in enumerate(words) if word not in FUNCTION_WORDS and len(word) > 1]
    if not places:
        return ""
    if kind == "caption":
        return caption
    begin: int = int(random.choice(places))
    ends = [place for place in places if begin < place < begin + LONGEST]
    if kind == "word" or not ends:
        return str(words[begin])
    article = begin > 0 and words[begin - 1] in ("a", "an", "the") and random.random() < 0.5
    return " ".join(words[begin - article : int(random.choice(ends)) + 1])


def _singular(word: str) -> str:
    for ending, other in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)] + other
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
