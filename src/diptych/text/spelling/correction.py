"""Corrects the words of a query: which are mistyped, what was meant, and whether any of them can be searched for.

A word is mistyped if it is in no list and a common word is one or two edits away. The word that was meant is the one
with the least sum of its rarity and the cost of the edits (a noisy channel). That sum must be lower than the cost of
the letters as a word of another language, by a margin, so that a query in another language is not corrected. Words in
quotes, with digits or accents, in other scripts, and names in capitals within a sentence are never corrected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from diptych.text.spelling.edits import NEARBY, candidates, single_edits
from diptych.text.spelling.forms import is_formed
from diptych.text.spelling.word_list import NAME, WordList

# Chosen on mistyped common words and on words of other languages (benchmarks/probes/spelling.py).
ALONE, AMONG_ENGLISH = 3.0, 1.0  # margins for a suggestion: by itself, and among more English words than others
HOPELESS = 8.0  # margin from which a word is not searched for
FAMILIAR = 2.4  # cost per letter up to which a word looks like one of another language, and is not edited twice
NO_WORD = 4.0  # cost per letter from which a word without correction is not searched for
SHORT = 3  # letters up to which only swapped letters are corrected, because it may be an abbreviation
ABBREVIATION = 4  # letters up to which a word may be an abbreviation
DOUBTFUL, MORE_LIKELY = 15, 1.0  # a rarity from which a word beside a mistyped one is doubted, and how much

OWN_SCALE = 2000  # words of the index's own that weigh as much as the list

_QUOTED = re.compile(r'"[^"]*"')
_WORD = re.compile(r"(?<![^\s\"'(,;:/-])[A-Za-z]+(?:['’][A-Za-z]+)?(?![^\s\"'),.;:!?/-])")
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """A query as it was read: the corrected text, if any, and whether it has a word that can be searched for."""

    suggestion: str | None = None
    is_searchable: bool = True


class OwnWords:
    """The words that an index has, with how often each occurs: they are known, and they may have been meant.

    `is_own` tells it for one word; `counts` reads all of them and is called only for a word that is not known.
    """

    def __init__(self, is_own: Callable[[str], bool], counts: Callable[[], Mapping[str, int]]) -> None:
        self.is_own, self._read = is_own, counts

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How often each word in plain letters occurs."""
        return {word: count for word, count in self._read().items() if word.isascii() and word.isalpha()}

    @cached_property
    def total(self) -> int:
        """The number of all words."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class _Word:
    """A word of the text: its place, its letters in lower case, and whether it must stay as it is."""

    begin: int
    end: int
    letters: str
    stays: bool


class Corrector:
    """Corrects queries by a list of words and the words of an index; `is_known` tells other words that are right."""

    def __init__(self, words: WordList, own: OwnWords, is_known: Callable[[str], bool] | None = None) -> None:
        self._list, self._own, self._is_known = words, own, is_known or frozenset[str]().__contains__

    def read(self, text: str) -> Reading:
        """The text with its corrections, and whether it can be searched for."""
        words = list(_words(text))
        unknown = [word for word in words if not word.stays and not self._knows(word.letters)]
        if not unknown:
            return Reading()
        margin = self._margin([word.letters for word in words if word not in unknown])
        meant: dict[_Word, str] = {}
        hopeless = 0
        for word in unknown:
            best = self._best(word.letters)
            certainty = None if best is None else self._cost_elsewhere(word.letters) - best[1]
            if best is not None and certainty is not None and certainty > margin:
                meant[word] = best[0]
            hopeless += self._is_hopeless(word.letters, certainty)
        if (meant and margin == AMONG_ENGLISH) or len(meant) == len(words):
            meant |= self._doubtful([word for word in words if word not in unknown and not word.stays])
        has_other_words = len(_remainder(text, words)) > 0
        others = [
            word
            for word in words
            if word not in unknown and len(word.letters) > 1 and not self._list.is_common(word.letters)
        ]
        searchable = has_other_words or bool(others) or hopeless < len(unknown)
        return Reading(_replaced(text, meant) if meant else None, searchable)

    def _knows(self, word: str) -> bool:
        is_listed = len(word) < 2 or word in self._list or is_formed(word, self._list)
        return is_listed or self._own.is_own(word) or self._is_known(word)

    def _margin(self, known: list[str]) -> float:
        """How certain a correction must be beside these known words; infinite if most are of another language."""
        rarities = [self._list.rarity(word) for word in known]
        english = sum(rarity is not None and rarity < NAME for rarity in rarities)
        foreign = sum(
            rarity is None and not self._own.is_own(word) for word, rarity in zip(known, rarities, strict=True)
        )
        if foreign > english:
            return math.inf
        return AMONG_ENGLISH if english > foreign else ALONE

    def _best(self, word: str) -> tuple[str, float] | None:
        """The word that was most likely meant, and its rarity with the cost of the edits."""
        twice = self._list.other_languages.cost_per_letter(word) > FAMILIAR  # which takes a tenth of a second
        found = candidates(word, self._may_be_meant, twice=twice)
        if len(word) <= SHORT:
            found = {meant: cost for meant, cost in found.items() if sorted(meant) == sorted(word)}
        costs = {meant: cost + self._rarity(meant) for meant, cost in found.items()}
        return min(costs.items(), key=lambda item: (item[1], item[0])) if costs else None

    def _doubtful(self, known: list[_Word]) -> dict[_Word, str]:
        """Rare words of which a common word is one easy edit away, such as "beech" for "beach"."""
        meant = {}
        for word in known:
            rarity = self._rarity(word.letters)
            listed = self._list.rarity(word.letters)
            if len(word.letters) <= SHORT or rarity < DOUBTFUL or listed is None or listed >= NAME:
                continue
            edits = [(edited, cost) for edited, cost in single_edits(word.letters).items() if cost <= NEARBY]
            costs = {
                edited: cost + self._rarity(edited)
                for edited, cost in edits
                if len(edited) == len(word.letters) and self._may_be_meant(edited)
            }
            best = min(costs, key=lambda edited: (costs[edited], edited), default=None)
            if best is not None and costs[best] <= rarity - MORE_LIKELY:
                meant[word] = best
        return meant

    def _may_be_meant(self, word: str) -> bool:
        return self._list.rarity(word) is not None or (len(word) > 2 and word in self._own.counts)

    def _rarity(self, word: str) -> float:
        """The negative logarithm of a word's frequency, in the list and in the index."""
        rarity, count, total = self._list.rarity(word), self._own.counts.get(word, 0), self._own.total
        share = total / (total + OWN_SCALE)
        frequency = (1 - share) * (0 if rarity is None else math.exp(-rarity)) + share * count / max(1, total)
        return -math.log(frequency) if frequency else NAME

    def _cost_elsewhere(self, word: str) -> float:
        return self._list.other_languages.cost(word)

    def _is_hopeless(self, word: str, certainty: float | None) -> bool:
        """Whether an unknown word is neither a word of another language nor a name, as far as one can tell."""
        if certainty is not None:
            return certainty > HOPELESS
        return len(word) > ABBREVIATION and self._list.other_languages.cost_per_letter(word) > NO_WORD


def _words(text: str) -> Iterator[_Word]:
    """The words of plain letters outside of quotes."""
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    for match in _WORD.finditer(text):
        begin = match.start()
        word = _POSSESSIVE.sub("", match[0])
        if any(first <= begin < last for first, last in quoted):
            continue
        is_cased = word != word.lower() and text != text.upper()
        is_name = is_cased and (bool(text[:begin].strip(" -'(")) or word[1:] != word[1:].lower())
        yield _Word(begin, begin + len(word), word.lower(), is_name or not word.isalpha())


def _remainder(text: str, words: list[_Word]) -> list[str]:
    """What the text has besides these words that can be searched for: quotes, numbers, other scripts."""
    for word in reversed(words):
        text = f"{text[: word.begin]} {text[word.end :]}"
    return re.findall(r"[^\W_]{2,}|[^\x00-\x7f]", text)


def _replaced(text: str, meant: Mapping[_Word, str]) -> str:
    for word in sorted(meant, key=lambda word: -word.begin):
        typed, correct = text[word.begin : word.end], meant[word]
        if typed == typed.upper() and len(typed) > 1:
            correct = correct.upper()
        elif typed[0] != typed[0].lower():
            correct = correct.capitalize()
        text = text[: word.begin] + correct + text[word.end :]
    return text
