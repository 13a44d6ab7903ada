"""An answer as JSON, with a sentence for people where there is something to know about it."""

from __future__ import annotations

import json

from diptych.serve.queries import Found, Question

CAPTIONS = 5  # of an image that was found, at most


def to_json(question: Question, found: Found, milliseconds: float) -> bytes:
    """The body of an answer; it is made by hand, because checking hundreds of hits again costs more than the search."""
    text = question.about if isinstance(question.about, str) else None
    answer = {
        "index": question.index,
        "text": text,
        "to": question.ask.to,
        **found.answer.to_json(),
        "message": found.answer.message,
        "unknown": list(found.answer.unknown_words),
        "milliseconds": round(milliseconds, 3),
    }
    for hit in answer["hits"]:
        hit["captions"] = list(found.captions.get(hit["id"], ()))[:CAPTIONS]
    return json.dumps(answer).encode("ascii")
