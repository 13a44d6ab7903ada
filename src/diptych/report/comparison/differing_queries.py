"""Queries on which runs differ, with the first answers of each run.

Fig. 2 and 3 of the ConVSE paper show the first three answers of a query, correct ones in green and incorrect ones in
red; with the rank of the first correct answer, this includes what Fig. A.1 of Faghri et al. 2018 shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import ScoreError
from diptych.evaluation.runs import encoded_score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.report.comparison.compare import ComparedRun, Comparison
from diptych.report.elements import Answer, DirectionName
from diptych.report.sections.examples import Describe, first_per_group
from diptych.report.thumbnails import corpus_thumbnail_uri

SHOWN = 4  # queries per heading
ANSWERS = 3  # answers per query and run


@dataclass(frozen=True)
class RunAnswers:
    """The first answers of one run to a query, and the rank of the first correct answer."""

    run: str
    rank: int
    answers: Sequence[Answer]


@dataclass(frozen=True)
class ComparedQuery:
    """A text, or an image by its id and picture, with the answers of each run.

    `ground_truth` is the caption and the picture, if any, of the first correct answer.
    """

    text: str
    ground_truth: tuple[str, str | None]
    answers_by_run: Sequence[RunAnswers]
    picture: str | None = None


@dataclass(frozen=True)
class QueryGroup:
    """Queries under a heading that says how they were selected."""

    heading: str
    queries: Sequence[ComparedQuery]


@dataclass(frozen=True)
class DifferingQueries:
    """The selected queries of one direction."""

    direction: DirectionName
    groups: Sequence[QueryGroup]


def differing_queries(comparison: Comparison, seed: int = 0, shown: int = SHOWN) -> list[DifferingQueries]:
    """For each direction the queries on which the runs differ most, and a random sample."""
    if len(comparison.baseline.result.folds) != 1:
        raise ScoreError("queries are shown for one gallery only; compare without folds")
    found = []
    for side in _directions(comparison):
        selected = select_queries(comparison, side.ranks, side.groups, seed, shown)
        groups = [QueryGroup(heading, [side.query(comparison.runs, row) for row in rows]) for heading, rows in selected]
        found.append(DifferingQueries(side.direction, groups))
    return found


def select_queries(
    comparison: Comparison, ranks: Integers, groups: Integers, seed: int, shown: int
) -> Iterator[tuple[str, list[int]]]:
    """Select queries by the ranks of all runs, (runs, queries), each of a different group and none twice.

    First those with the largest ratio of ranks in favour of the run with the highest rsum, then those in favour of the
    baseline; with more than two runs, those with the largest ratio where one run ranks a correct answer first; finally
    a random sample.
    """
    best = best_run(comparison)
    logs = np.log(ranks)
    gain, spread = logs[0] - logs[best], logs.max(0) - logs.min(0)
    baseline, name = comparison.baseline.name, comparison.runs[best].name
    criteria = [(f"{name} is better than {baseline}", gain), (f"{baseline} is better than {name}", -gain)]
    if len(comparison.runs) > 2:
        is_first = (ranks == 1).any(0)
        criteria.append(("Ranked first by one run, far lower by another", np.where(is_first, spread, 0)))
    free = np.ones(ranks.shape[1], bool)
    for heading, advantage in criteria:
        order = np.argsort(-advantage, kind="stable")
        rows = first_per_group(order[(advantage[order] > 0) & free[order]], groups, shown)
        free[rows] = False
        yield heading, rows
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(free))
    yield f"Random sample, seed {seed}", first_per_group(rest, groups, shown)


def best_run(comparison: Comparison) -> int:
    """The number of the run, other than the baseline, with the highest rsum."""
    return 1 + int(np.argmax([run.result.metrics.rsum for run in comparison.runs[1:]]))


def first_answers(scores: NDArray[np.floating], correct: NDArray[np.bool_], rank: int, count: int) -> list[int]:
    """The rows of the first answers, consistent with a query's rank: negatives come before positives of equal score.

    The rank was computed from another product of the same numbers, which may differ in the last bit. Therefore the rank
    determines how many negatives come before the first correct answer.

    >>> first_answers(np.array([0.5, 0.9, 0.5, 0.1]), np.array([True, False, False, True]), rank=3, count=3)
    [1, 2, 0]
    """
    order = np.argsort(-scores, kind="stable")
    negatives, positives = order[~correct[order]], order[correct[order]]
    later = np.concatenate([negatives[rank - 1 :], positives[1:]])
    later = later[np.argsort(-scores[later], kind="stable")]  # stable: negatives stay before positives of equal score
    return [int(row) for row in (*negatives[: rank - 1], positives[0], *later)][:count]


@dataclass(frozen=True)
class _Direction:
    """One direction of retrieval: the ranks (runs, queries) and groups of its queries, and the groups of its answers.

    `scores` computes the scores of all answers to a query.
    """

    direction: DirectionName
    ranks: Integers
    groups: Integers
    answer_groups: Integers
    scores: Callable[[EncodedCorpus, int], Tensor]
    describe_query: Describe
    describe_answer: Describe

    def query(self, runs: Sequence[ComparedRun], row: int) -> ComparedQuery:
        """A query with the answers of each run."""
        correct = self.answer_groups == self.groups[row]
        answers_by_run = []
        for run, rank in zip(runs, self.ranks[:, row].tolist(), strict=True):
            scores = self.scores(run.encoded, row).cpu().numpy()
            found = first_answers(scores, correct, rank, ANSWERS)
            answers = [self._answer(answer, float(scores[answer]), bool(correct[answer])) for answer in found]
            answers_by_run.append(RunAnswers(run.name, rank, answers))
        text, picture = self.describe_query(row)
        return ComparedQuery(text, self.describe_answer(int(np.argmax(correct))), answers_by_run, picture)

    def _answer(self, row: int, score: float, correct: bool) -> Answer:
        caption, picture = self.describe_answer(row)
        return Answer(caption, score, correct, picture)


def _directions(comparison: Comparison) -> tuple[_Direction, _Direction]:
    corpus = comparison.corpus
    ranks = [run.result.folds[0] for run in comparison.runs]

    @functools.cache
    def image(row: int) -> tuple[str, str | None]:
        return corpus.image_ids[row], corpus_thumbnail_uri(corpus, row)

    def text(row: int) -> tuple[str, str | None]:
        return corpus.texts[row], None

    images, texts = corpus.image_groups, corpus.text_groups
    image_ranks, text_ranks = np.stack([each.images for each in ranks]), np.stack([each.texts for each in ranks])
    return (
        _Direction("image to text", image_ranks, images, texts, _text_scores, image, text),
        _Direction("text to image", text_ranks, texts, images, _image_scores, text, image),
    )


@torch.inference_mode()
def _text_scores(encoded: EncodedCorpus, image: int) -> Tensor:
    """The scores of all texts with one image."""
    return encoded_score(encoded).against(slice(0, len(encoded.texts)))(slice(image, image + 1))[0]


@torch.inference_mode()
def _image_scores(encoded: EncodedCorpus, text: int) -> Tensor:
    """The scores of all images with one text."""
    return encoded_score(encoded).against(slice(text, text + 1))(slice(0, len(encoded.images)))[:, 0]
