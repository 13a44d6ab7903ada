"""What a mistyped word may have been: every word one or two edits away, and how unlikely those edits are.

An edit is one of Damerau and Levenshtein's: a letter too many, one missing, a wrong one, or two neighbours swapped. Its
cost is in units of a word's rarity (the negative logarithm of a frequency), so that both can be added.
"""

from __future__ import annotations

from collections.abc import Callable

from diptych.text.spelling.word_list import LETTERS

SWAPPED, DOUBLED, EXTRA, MISSING, NEARBY, WRONG = 0.0, 0.5, 3.0, 1.5, 1.5, 3.0
TOO_SHORT = 5.0  # a letter too many that leaves two
FIRST = 2.0  # more if the edit changes the first letter, which people rarely mistype
SECOND = 4.0  # more for a second edit
_TWO_EDITS = range(5, 13)  # letters; two edits of a shorter word leave too little of it, and a longer one takes long

_KEYBOARDS = (("qwertyuiop", "asdfghjkl", "zxcvbnm"),)
_VOWELS = "aeiouy"


def candidates(word: str, is_word: Callable[[str], bool], *, twice: bool = True) -> dict[str, float]:
    """The words one edit away from this one with the cost of the edit, or else, with `twice`, two edits away."""
    once = single_edits(word)
    found = {edited: cost for edited, cost in once.items() if is_word(edited)}
    if found or not twice or len(word) not in _TWO_EDITS:
        return found
    for edited, cost in once.items():
        if cost >= WRONG:
            continue
        for again, second in single_edits(edited).items():
            if is_word(again):
                found[again] = min(cost + second + SECOND, found.get(again, float("inf")))
    return found


def single_edits(word: str) -> dict[str, float]:
    """Everything one edit away from a word, with the cost of the edit."""
    edits: dict[str, float] = {}

    def add(edited: str, cost: float, at: int) -> None:
        cost += FIRST if at == 0 else 0
        if edited != word and edited and cost < edits.get(edited, float("inf")):
            edits[edited] = cost

    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        neighbours = word[max(0, at - 1) : at + 1]
        if len(after) > 1:
            add(before + after[1] + after[0] + after[2:], SWAPPED, at)
        if after:
            add(before + after[1:], DOUBLED if before[-1:] == after[0] else EXTRA if len(word) > 3 else TOO_SHORT, at)
        for letter in LETTERS:
            add(before + letter + after, DOUBLED if letter in neighbours else MISSING, at)
            if after:
                add(before + letter + after[1:], NEARBY if letter in _SIMILAR[after[0]] else WRONG, at)
    return edits


def _similar() -> dict[str, set[str]]:
    """The letters that are often typed in place of each letter: neighbours on the keyboard, and vowels for vowels."""
    places = {key: (row, at) for keys in _KEYBOARDS for row, line in enumerate(keys) for at, key in enumerate(line)}
    similar: dict[str, set[str]] = {}
    for key, (row, at) in places.items():
        near = {other for other, (line, place) in places.items() if abs(line - row) <= 1 and abs(place - at) <= 1}
        similar[key] = near | (set(_VOWELS) if key in _VOWELS else set())
    return similar


_SIMILAR = _similar()
