"""Captions whose words are coloured by their importance for the score (Fig. 11 of the dual-path paper)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from diptych.data.corpus import Corpus
from diptych.errors import DataError
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.explain.word_importance import Explanation
from diptych.report.thumbnails import corpus_thumbnail_uri

TOP_WORDS = 3  # words per caption in bold

_NOTE = (
    "The first caption of each image. The importance of a word is the drop of the score when the word is left out. "
    f"Important words are green, and the {TOP_WORDS} most important ones bold. Without a red word the score would be "
    "higher. Words that the model does not know are struck out."
)


@dataclass(frozen=True)
class CaptionWord:
    """A word, its importance, and that importance relative to the largest one, from -1 to 1.

    Both are None if the model does not know the word. `is_top` marks the most important words.
    """

    text: str
    importance: float | None = None
    relative: float | None = None
    is_top: bool = False


@dataclass(frozen=True)
class ExplainedPhoto:
    """An image, by its id and a data: URI, with the words of one of its captions and the score of both."""

    name: str
    picture: str | None
    score: float
    words: Sequence[CaptionWord]


@dataclass(frozen=True)
class WordImportanceSection:
    """Images with the importance of each word of a caption, and a note on how to read them."""

    note: str
    photos: Sequence[ExplainedPhoto]


def word_importance_section(model: Model, encoded: EncodedCorpus, rows: Sequence[int]) -> WordImportanceSection | None:
    """These images, each with its first caption that has a known word; None if no image has such a caption."""
    corpus = encoded.corpus
    if corpus is None:
        return None
    photos = [photo for row in rows if (photo := _photo(model, encoded, corpus, row)) is not None]
    return WordImportanceSection(_NOTE, photos) if photos else None


def _photo(model: Model, encoded: EncodedCorpus, corpus: Corpus, row: int) -> ExplainedPhoto | None:
    image = encoded.images[row : row + 1]
    for text in np.flatnonzero(encoded.text_groups == encoded.image_groups[row]):
        with suppress(DataError):  # a caption without known words: try the next one
            found = model.explain(image, corpus.texts[int(text)])
            picture = corpus_thumbnail_uri(corpus, row)
            return ExplainedPhoto(corpus.image_ids[row], picture, found.score, caption_words(found))
    return None


def caption_words(found: Explanation) -> list[CaptionWord]:
    """The words of an explanation in their order; only words with a positive importance can be top words."""
    ordered = found.by_importance
    top = {word.position for word in ordered[:TOP_WORDS] if word.importance is not None and word.importance > 0}
    largest = max((abs(word.importance) for word in ordered if word.importance is not None), default=0.0)
    return [
        CaptionWord(word.word)
        if word.importance is None
        else CaptionWord(word.word, word.importance, word.importance / (largest or 1.0), word.position in top)
        for word in found.words
    ]
