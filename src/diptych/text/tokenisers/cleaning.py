"""How texts are cleaned before a pretrained tokeniser reads them: as in open_clip, under its names, or transformers."""

from __future__ import annotations

import html
import string
from collections.abc import Callable
from typing import Literal

from diptych.optional import import_optional

Cleaning = Literal["none", "whitespace", "lower", "canonicalize", "unpunctuated"]

_UNPUNCTUATED = str.maketrans("", "", string.punctuation)
_NO_PUNCTUATION = str.maketrans("_", " ", string.punctuation.replace("_", ""))


def cleaner(cleaning: Cleaning) -> Callable[[str], str]:
    """The function that cleans a text.

    `whitespace` repairs wrongly decoded characters and HTML entities and joins white space; `lower` also makes the text
    lower-case, and `canonicalize` also removes punctuation. `unpunctuated` removes punctuation, joins white space and
    makes the text lower-case without repairing it, as transformers does for SigLIP. `none` leaves a text as it is.
    """
    return _CLEANERS[cleaning]


def _repair(text: str) -> str:
    ftfy = import_optional("ftfy", "pip install 'diptych[tokenizers]'", instead="a model without cleaning")
    repaired: str = html.unescape(html.unescape(ftfy.fix_text(text)))
    return repaired


def _join(text: str) -> str:
    return " ".join(text.split())


_CLEANERS: dict[Cleaning, Callable[[str], str]] = {
    "none": str,
    "whitespace": lambda text: _join(_repair(text)),
    "lower": lambda text: _join(_repair(text)).lower(),
    "canonicalize": lambda text: _join(_repair(text).translate(_NO_PUNCTUATION).lower()),
    "unpunctuated": lambda text: _join(text.lower().translate(_UNPUNCTUATED)),
}
