"""The Treebank tokeniser: splits a text into lower-case tokens by the conventions of the Penn Treebank.

Clitics are split off (`don't` is `do n't`, `dog's` is `dog 's`), most punctuation is a token of its own, commas and
colons stay inside numbers, double quotes become `` and '', and a period is split off only at the end of a sentence.
Plain English is split as by NLTK's `word_tokenize`, which the published matching models were trained with.
"""

from __future__ import annotations

import re
import unicodedata

_ABBREVIATIONS = (
    "approx|ave|blvd|capt|corp|dept|dr|etc|ft|gen|gov|inc|jr|lt|ltd|mr|mrs|ms|mt|prof|rev|sgt|sr|st|vs"
    r"|no(?=\.\s\d)"
)
_CLOSERS = r"""['")\]}>»]*"""

# The alternatives are tried in this order, on a text without white space at its ends.
_TOKEN = re.compile(
    rf"""
    [a-z]+(?!\S)                                         # a shortcut for most words; the general rules follow
  | (?:{_ABBREVIATIONS}|(?:[^\W\d_]\.)*[^\W\d_])         # an abbreviation or an initial keeps its period
        \.(?={_CLOSERS}\s)                               #     inside the text, though not at its end
  | (?:
        [^\s.,:;'"`\-@\#$%&?!*()\[\]{{}}<>«»]+
      | -(?!-)
      | \.(?!\.|{_CLOSERS}(?:\s|\Z))                     # in 3.5, but not at the end of a sentence
      | [,:](?=\d)                                       # in 3,000 and 12:30
      | (?<=\w)'(?=\w|-(?!-))                            # in o'clock and, until it is split below, in don't
      | '(?=(?:d|ll|m|n|re|s|t|ve)\b)                    # a clitic that lost its word
    )+
  | \.\.+ | -- | '' | `` | \S
    """,
    re.VERBOSE,
)
_CLITIC = re.compile(r"(.+)(n't|'(?:d|ll|m|re|s|ve))")
_OPENING_QUOTE = re.compile(r"""(?<![^\s(\[{<])(?:"|'')""")

_CONTRACTIONS = {
    "cannot": ("can", "not"),
    "d'ye": ("d", "'ye"),
    "gimme": ("gim", "me"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "lemme": ("lem", "me"),
    "more'n": ("more", "'n"),
    "wanna": ("wan", "na"),
}

_PLAIN_FORMS: dict[int, str | None] = {
    **dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x200B, 0xFEFF], " "),  # control and zero width
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),  # surrogates, which no file can hold
    **dict.fromkeys(map(ord, "\u00ad\u2060"), None),  # soft hyphen and word joiner are invisible
    **dict.fromkeys(map(ord, "‘’‚‛′ʼ"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑−"), "-"),
    **dict.fromkeys(map(ord, "‒–—―"), "--"),
    ord("…"): "...",
}


def tokenise(text: str) -> list[str]:
    """Split any text into lower-case tokens; no token is empty or contains white space."""
    text = text.lower()
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFC", text.translate(_PLAIN_FORMS))
    text = text.strip()
    tokens = _plain_words(text)
    if tokens is not None and _CONTRACTIONS.keys().isdisjoint(tokens):
        return tokens
    return _general(text)


def _plain_words(text: str) -> list[str] | None:
    """The tokens of plain words with at most a period at the end, as most captions are; None for any other text."""
    words, period, rest = text.partition(".")
    if rest or not (text.isascii() and words.replace(" ", "").isalpha()):
        return None
    tokens = words.split()
    if period:
        tokens.append(period)
    return tokens


def _general(text: str) -> list[str]:
    quoted = '"' in text or "'" in text
    if quoted:
        text = _OPENING_QUOTE.sub("``", text)
    tokens = _TOKEN.findall(text)
    if quoted or not _CONTRACTIONS.keys().isdisjoint(tokens):
        return [part for token in tokens for part in _split(token)]
    return tokens


def _split(token: str) -> tuple[str, ...]:
    """Split off a clitic, split a contraction in two, or give a closing quote its Treebank form."""
    if token == '"':
        return ("''",)
    if token in _CONTRACTIONS:
        return _CONTRACTIONS[token]
    clitic = _CLITIC.fullmatch(token)
    return clitic.groups() if clitic else (token,)
