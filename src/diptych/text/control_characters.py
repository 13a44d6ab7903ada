"""Characters that break a line or control a terminal, which names of files may have and lines of output must not."""

from __future__ import annotations

import unicodedata

_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, surrogates, and separators of lines and paragraphs


def has_control_characters(text: str) -> bool:
    """Whether a text has a line break or another character that does not belong into a line."""
    return any(unicodedata.category(character) in _CATEGORIES for character in text)
