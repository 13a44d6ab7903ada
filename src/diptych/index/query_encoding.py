"""Encodes the texts of queries: from the vector of what is wanted, a part of the vector of what is excluded is taken.

The query is q - 0.35 e, where q and e are the wanted and the excluded words as vectors of length one, at the length
that the vector of the wanted words had. `benchmarks/probes/exclusion.py` compares this rule with others.

A picture with words ("like this, but at night") is 0.4 p + 0.6 q, where p and q are the picture and the words as
vectors of length one; `benchmarks/probes/picture_and_words.py` compares this rule with others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diptych.data.corpus import Floats
from diptych.errors import DataError
from diptych.index.query_text import parse
from diptych.model import Model
from diptych.models.embeddings import normalized
from diptych.models.engines.engine import Encodings

SHARE = 0.35  # of the excluded vector
TEXT_SHARE = 0.6  # of the words that are added to a picture
_RE_RANKS, _HAS_SETS = "whose score is not an inner product", "that compares sets of vectors"


def encode_query_texts(model: Model, texts: Sequence[str]) -> Encodings:
    """One row per text, all encoded in one pass; a DataError if words are excluded and the model cannot do it."""
    queries = [parse(text) for text in texts]
    phrases = list(dict.fromkeys(phrase for query in queries for phrase in query.excluded))
    if phrases and not model.is_inner_product:
        raise _cannot_exclude(phrases[0], _RE_RANKS)
    encoded = model.engine.encode_texts([*(query.wanted for query in queries), *phrases])
    if not phrases:
        return encoded
    if encoded.sets is not None:
        raise _cannot_exclude(phrases[0], _HAS_SETS)
    wanted = encoded.vectors[: len(queries)]  # (queries, size)
    directions = dict(zip(phrases, normalized(encoded.vectors[len(queries) :]), strict=True))
    rows = [
        without(vector, np.stack([directions[phrase] for phrase in query.excluded])) if query.excluded else vector
        for vector, query in zip(wanted, queries, strict=True)
    ]
    return Encodings(np.stack(rows))


def add_text(model: Model, picture: Encodings, text: str) -> Encodings:
    """The encoding of a picture, one row, turned towards a text; a DataError if the model cannot do it."""
    if not model.is_inner_product or picture.sets is not None:
        raise DataError(
            f"{text[:100]!r}: a model {_RE_RANKS if not model.is_inner_product else _HAS_SETS} cannot combine a "
            "picture with words; leave one of them out"
        )
    words = encode_query_texts(model, [text])
    return Encodings(
        normalized((1 - TEXT_SHARE) * normalized(picture.vectors) + TEXT_SHARE * normalized(words.vectors))
    )


def without(wanted: Floats, excluded: Floats) -> Floats:
    """A vector, (size,), turned away from others of length one, (others, size); its length stays."""
    turned = normalized(wanted) - SHARE * normalized(excluded.sum(0))
    return (normalized(turned) * np.linalg.norm(wanted)).astype(wanted.dtype)


def _cannot_exclude(phrase: str, reason: str) -> DataError:
    return DataError(f"-{phrase[:100]}: a model {reason} cannot exclude words; leave them out of the query")
