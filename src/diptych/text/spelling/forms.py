"""Words that a list need not have: regular forms of its words ("rollerblades"), and compounds ("wakeboard")."""

from __future__ import annotations

from diptych.text.spelling.word_list import NAME, WordList

_ENDINGS = ("s", "es", "r", "er", "rs", "ers", "ed", "ing", "y")
_STEM = 4  # letters of the shortest word that takes an ending
_PART = 3  # letters of the shortest part of a compound
_COMPOUND = 7  # letters of the shortest compound
_RARE = 15  # the rarity from which a word is not taken for a part


def is_formed(word: str, words: WordList) -> bool:
    """Whether a word is formed from English words of a list."""
    stems = [word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending)]
    if any(len(stem) >= _STEM and _is_english(stem, words, NAME) for stem in stems):
        return True
    if len(word) < _COMPOUND:
        return False
    parts = [(word[:at], word[at:]) for at in range(_PART, len(word) - _PART + 1)]
    return any(_is_english(first, words, _RARE) and _is_english(second, words, _RARE) for first, second in parts)


def _is_english(word: str, words: WordList, below: int) -> bool:
    rarity = words.rarity(word)
    return rarity is not None and rarity < below
