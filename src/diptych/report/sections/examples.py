"""Example queries of a report: those with the best and the worst ranks, with the answers that were retrieved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Integers
from diptych.errors import ScoreError
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.index.entries import Hit
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.report.elements import Answer, DirectionName
from diptych.report.thumbnails import corpus_thumbnail_uri

EXAMPLES = 4  # queries per direction
ANSWERS = 5  # answers per query

# Maps the row of an image or a text to its caption and, if any, the data: URI of its picture.
Describe = Callable[[int], tuple[str, str | None]]


@dataclass(frozen=True)
class Question:
    """A text query without a known answer, and the images found for it, best first."""

    text: str
    answers: Sequence[Answer]


@dataclass(frozen=True)
class ExampleQuery:
    """A query of the evaluated split, its answers, best first, and the rank of the first correct one.

    `query_text` is the text of a text query, or the id of an image query. `first_correct` is the correct answer with
    the highest score; the page shows it if its rank is beyond the listed answers.
    """

    direction: DirectionName
    rank: int
    answers: Sequence[Answer]
    query_text: str | None = None
    query_picture: str | None = None
    first_correct: Answer | None = None


class ExampleQueries:
    """Selects the best and the worst queries of a result on one gallery."""

    def __init__(self, encoded: EncodedCorpus, corpus: Corpus, result: RetrievalResult) -> None:
        if len(result.folds) != 1:
            raise ScoreError("a report shows one gallery; measure without folds")
        self.corpus, self.encoded, self.ranks = corpus, encoded, result.folds[0]
        self.score = encoded.matcher().score

    def select(self, best: bool) -> list[ExampleQuery]:
        """The queries of both directions with the best, or the worst, ranks; at most one per group and direction."""
        texts = [self.text_query(row) for row in _extreme_rows(self.ranks.texts, self.ranks.text_groups, best)]
        return [*texts, *(self.image_query(row) for row in self.image_rows(best))]

    def image_rows(self, best: bool) -> list[int]:
        """The rows of the selected image queries."""
        return _extreme_rows(self.ranks.images, self.ranks.image_groups, best)

    def text_query(self, row: int) -> ExampleQuery:
        """A text and the images retrieved for it."""
        scores = self.score(self.encoded.images, self.encoded.texts[row : row + 1])[:, 0]
        correct = torch.from_numpy(self.corpus.image_groups == self.corpus.text_groups[row])
        answers, first_correct = _top_answers(scores, correct, self._describe_image)
        rank, text = int(self.ranks.texts[row]), self.corpus.texts[row]
        return ExampleQuery("text to image", rank, answers, text, None, first_correct)

    def image_query(self, row: int) -> ExampleQuery:
        """An image and the texts retrieved for it."""
        scores = self.score(self.encoded.images[row : row + 1], self.encoded.texts)[0]
        correct = torch.from_numpy(self.corpus.text_groups == self.corpus.image_groups[row])
        answers, first_correct = _top_answers(scores, correct, lambda text: (self.corpus.texts[text], None))
        name, picture = self._describe_image(row)
        return ExampleQuery("image to text", int(self.ranks.images[row]), answers, name, picture, first_correct)

    def _describe_image(self, row: int) -> tuple[str, str | None]:
        return self.corpus.image_ids[row], corpus_thumbnail_uri(self.corpus, row)


def answered_question(corpus: Corpus, text: str, hits: Sequence[Hit]) -> Question:
    """A question with its search hits, each with the picture from the corpus."""
    rows = {name: row for row, name in enumerate(corpus.image_ids)}
    return Question(
        text,
        [Answer(hit.entry.key, hit.score, None, corpus_thumbnail_uri(corpus, rows[hit.entry.key])) for hit in hits],
    )


def first_per_group(rows: Integers, groups: Integers, count: int) -> list[int]:
    """The first `count` rows, in order, that belong to different groups: queries of one group look alike.

    >>> first_per_group(np.array([4, 1, 3, 0]), np.array([7, 8, 7, 8, 9]), 2)
    [4, 1]
    """
    first = np.unique(groups[rows], return_index=True)[1]
    return [int(rows[position]) for position in np.sort(first)[:count]]


def _extreme_rows(ranks: Integers, groups: Integers, best: bool) -> list[int]:
    return first_per_group(np.argsort(ranks if best else -ranks, kind="stable"), groups, EXAMPLES)


def _top_answers(scores: Tensor, correct: Tensor, describe: Describe) -> tuple[list[Answer], Answer]:
    """The answers with the highest scores, and the correct one with the highest score."""
    scores = scores.cpu()

    def answer(row: int) -> Answer:
        caption, picture = describe(row)
        return Answer(caption, float(scores[row]), bool(correct[row]), picture)

    top = scores.topk(min(ANSWERS, len(scores))).indices.tolist()
    return [answer(row) for row in top], answer(int(scores.masked_fill(~correct, -torch.inf).argmax()))
