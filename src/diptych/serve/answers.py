"""An answer as JSON, with a sentence for people where there is something to know about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from diptych.index.entries import Answer, Filters
from diptych.serve.queries import Found, Question
from diptych.text.tokenisers.treebank import tokenise

CAPTIONS = 5  # of an image that was found, at most


def to_json(question: Question, found: Found, milliseconds: float) -> bytes:
    """The body of an answer; it is made by hand, because checking hundreds of hits again costs more than the search."""
    text = question.about if isinstance(question.about, str) else None
    answer = {
        "index": question.index,
        "text": text,
        "to": question.ask.to,
        **(_doubted(found.answer) if chance(question, found) else found.answer).to_json(),
        "message": message(question, found),
        "unknown": list(found.unknown),
        "milliseconds": round(milliseconds, 3),
    }
    for hit in answer["hits"]:
        hit["captions"] = list(found.captions.get(hit["id"], ()))[:CAPTIONS]
    return json.dumps(answer).encode("ascii")


def message(question: Question, found: Found) -> str | None:
    """What a person should know: nothing there, words that the model does not know, nothing that stands out."""
    kind = question.ask.to
    if not found.answer.searched:
        if question.ask.filters != Filters():
            return f"No {kind} passes the filters; widen them."
        return f"There is no {kind} in this index yet; `diptych index` adds some."
    if chance(question, found):
        return "The model knows none of these words, so what is shown is chance; try others."
    sentences = []
    if found.unknown:
        sentences.append(f"The model does not know {_listed(found.unknown)}.")
    if not found.answer.found and found.answer.hits:
        sentences.append("Nothing stands out; these are the nearest.")
    return " ".join(sentences) or None


def chance(question: Question, found: Found) -> bool:
    """Whether the model knows none of the question's words, so that whatever it found says nothing."""
    words = tokenise(question.about) if isinstance(question.about, str) else []
    return bool(words) and set(words) <= set(found.unknown)


def _doubted(answer: Answer) -> Answer:
    return replace(answer, found=False, hits=tuple(replace(hit, stands_out=False) for hit in answer.hits))


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(f"“{word}”" for word in words[:5])
    return f"{shown} and {len(words) - 5} more words" if len(words) > 5 else shown
