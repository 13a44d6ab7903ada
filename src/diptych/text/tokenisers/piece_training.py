"""Learns word pieces from texts, for the tokenisers that a recipe trains; the same texts give the same pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from diptych.errors import DataError
from diptych.text.tokenisers.library import import_tokenizers
from diptych.text.tokenisers.subwords import encodable
from diptych.text.tokenisers.token_table import SPECIALS, UNKNOWN

UNKNOWN_NAME = SPECIALS[UNKNOWN]


def train_pieces(
    model: Any,
    make_trainer: Callable[[list[str]], Any],
    characters: Callable[[str], Iterable[str]],
    texts: Iterable[str],
) -> dict[str, Any]:
    """The JSON of a tokeniser whose model is trained on lower-case texts, split at white space and punctuation.

    `characters` splits a word into the single characters that training begins with, as the model marks them, and
    `make_trainer` makes the trainer for given first pieces. The library would number the marked characters by chance,
    and pairs of equal counts are joined in the order of their numbers; so they are given, in alphabetical order.
    """
    library = import_tokenizers()
    tokenizer = library.Tokenizer(model)
    normalizers = library.normalizers
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    texts = [encodable(text) for text in texts]
    first = sorted({character for word in set(_words(tokenizer, texts)) for character in characters(word)})
    if not first:
        raise DataError("none of the texts has a word to make pieces of; use other texts")
    tokenizer.train_from_iterator(texts, make_trainer([UNKNOWN_NAME, *first]))
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return {**document, "added_tokens": []}  # the first pieces would otherwise be found anywhere in a text


def _words(tokenizer: Any, texts: list[str]) -> Iterator[str]:
    for text in texts:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)):
            yield word
