"""Images of a report with one of their captions, its words by what they are worth (Fig. 11 of the dual-path paper)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from diptych.data.corpus import Corpus
from diptych.errors import DataError
from diptych.evaluation.analyses.word_importance import Explanation, explain
from diptych.models.encodings import Encoded
from diptych.models.trained import Trained
from diptych.report.pictures import image_thumbnail
from diptych.report.run_page import ExplainedPhoto, WeighedWord, WordsSection

MOST = 3  # words of a caption that stand out

_NOTE = (
    "The first caption of each image, its words left out one at a time. The more the score loses without a word the "
    f"greener the word is, and the {MOST} that it loses most by are bold. Without a red one the score would be higher; "
    "words that the model does not know are struck out."
)


def words_section(trained: Trained, encoded: Encoded, rows: Sequence[int]) -> WordsSection | None:
    """These images, each with the first of its captions that has a word the model knows; none if no image has such."""
    corpus = encoded.corpus
    if corpus is None:
        return None
    photos = [photo for row in rows if (photo := _photo(trained, encoded, corpus, row)) is not None]
    return WordsSection(_NOTE, photos) if photos else None


def _photo(trained: Trained, encoded: Encoded, corpus: Corpus, row: int) -> ExplainedPhoto | None:
    image = encoded.images[row : row + 1]
    for text in np.flatnonzero(encoded.text_groups == encoded.image_groups[row]):
        with suppress(DataError):  # a caption that cannot be explained: the next may be
            found = explain(trained, image, corpus.texts[int(text)])
            return ExplainedPhoto(corpus.image_ids[row], image_thumbnail(corpus, row), found.score, weighed(found))
    return None


def weighed(found: Explanation) -> list[WeighedWord]:
    """The words of an explanation in their order, as a page shows them; only words that help are among the most."""
    ordered = found.by_importance
    most = {word.place for word in ordered[:MOST] if word.importance is not None and word.importance > 0}
    largest = max((abs(word.importance) for word in ordered if word.importance is not None), default=0.0)
    return [
        WeighedWord(word.word)
        if word.importance is None
        else WeighedWord(word.word, word.importance, word.importance / (largest or 1.0), word.place in most)
        for word in found.words
    ]
