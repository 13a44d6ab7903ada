"""Queries on which runs differ: which to show, and what each run finds first for them.

Fig. 2 and 3 of the ConVSE paper show the first three answers of a query, right ones in green and wrong ones in red;
with the rank of the truth in brackets they hold what Fig. A.1 of Faghri et al. 2018 shows.
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
from diptych.models.encodings import Encoded
from diptych.report.comparison.compare import Compared, Comparison
from diptych.report.pictures import image_thumbnail
from diptych.report.run_page import Answer, DirectionName
from diptych.report.sections.examples import one_a_group

SHOWN = 4
ANSWERS = 3

# The caption and the picture, if any, of an image or a text by its row.
Show = Callable[[int], tuple[str, str | None]]


@dataclass(frozen=True)
class Finding:
    """What one run finds first for a query, and the rank of the first right answer."""

    run: str
    rank: int
    answers: Sequence[Answer]


@dataclass(frozen=True)
class Query:
    """A text, or an image by its name and picture; likewise the first answer of its own; and what each run finds."""

    text: str
    truth: tuple[str, str | None]
    findings: Sequence[Finding]
    picture: str | None = None


@dataclass(frozen=True)
class Chosen:
    """Queries under a heading that says how they were chosen."""

    heading: str
    queries: Sequence[Query]


@dataclass(frozen=True)
class Differing:
    """The queries of one direction, in the groups that they were chosen for."""

    direction: DirectionName
    groups: Sequence[Chosen]


def differing_queries(comparison: Comparison, seed: int = 0, shown: int = SHOWN) -> list[Differing]:
    """The queries of both directions on which the runs of one gallery differ most, and some drawn with the seed."""
    if len(comparison.baseline.result.folds) != 1:
        raise ScoreError("queries are shown of one gallery; compare without folds")
    found = []
    for side in _sides(comparison):
        chosen = chosen_rows(comparison, side.ranks, side.groups, seed, shown)
        groups = [Chosen(heading, [side.query(comparison.runs, row) for row in rows]) for heading, rows in chosen]
        found.append(Differing(side.direction, groups))
    return found


def chosen_rows(
    comparison: Comparison, ranks: Integers, groups: Integers, seed: int, shown: int
) -> Iterator[tuple[str, list[int]]]:
    """Which queries to show, each of another group and none twice, from the ranks of all runs: (runs, queries).

    They are the largest ratios of ranks to the advantage of the run that gained most over the baseline, and to the
    baseline's; of more than two runs, the largest where one has the truth first and another has not; and some drawn at
    random.
    """
    best = best_run(comparison)
    logs = np.log(ranks)
    gain, spread = logs[0] - logs[best], logs.max(0) - logs.min(0)
    first, name = comparison.baseline.name, comparison.runs[best].name
    wanted = [(f"{name} does better than {first}", gain), (f"{first} does better than {name}", -gain)]
    if len(comparison.runs) > 2:
        split = (ranks == 1).any(0)
        wanted.append(("One run has it first, another far down", np.where(split, spread, 0)))
    free = np.ones(ranks.shape[1], bool)
    for heading, advantage in wanted:
        order = np.argsort(-advantage, kind="stable")
        rows = one_a_group(order[(advantage[order] > 0) & free[order]], groups, shown)
        free[rows] = False
        yield heading, rows
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(free))
    yield f"Drawn at random with seed {seed}", one_a_group(rest, groups, shown)


def best_run(comparison: Comparison) -> int:
    """The place of the run whose sum of recalls lies furthest above the baseline's, or the least below it."""
    return 1 + int(np.argmax([run.result.metrics.rsum for run in comparison.runs[1:]]))


def first_answers(scores: NDArray[np.floating], right: NDArray[np.bool_], rank: int, count: int) -> list[int]:
    """The answers that stand first, in agreement with a query's rank: a negative that ties stands before a positive.

    The rank was counted from other products of the same numbers, which may differ in the last bit, so it decides how
    many negatives stand before the first right answer.

    >>> first_answers(np.array([0.5, 0.9, 0.5, 0.1]), np.array([True, False, False, True]), rank=3, count=3)
    [1, 2, 0]
    """
    order = np.argsort(-scores, kind="stable")
    wrong, own = order[~right[order]], order[right[order]]
    later = np.concatenate([wrong[rank - 1 :], own[1:]])
    later = later[np.argsort(-scores[later], kind="stable")]  # negatives came first, and stay so where they tie
    return [int(row) for row in (*wrong[: rank - 1], own[0], *later)][:count]


@dataclass(frozen=True)
class _Side:
    """One direction: the queries' ranks (runs, queries) and groups, how answers are scored, how both are shown."""

    direction: DirectionName
    ranks: Integers
    groups: Integers
    answer_groups: Integers
    scores: Callable[[Encoded, int], Tensor]
    show_query: Show
    show_answer: Show

    def query(self, runs: Sequence[Compared], row: int) -> Query:
        """A query with what each run finds for it."""
        right = self.answer_groups == self.groups[row]
        findings = []
        for run, rank in zip(runs, self.ranks[:, row].tolist(), strict=True):
            scores = self.scores(run.encoded, row).cpu().numpy()
            found = first_answers(scores, right, rank, ANSWERS)
            answers = [self._answer(answer, float(scores[answer]), bool(right[answer])) for answer in found]
            findings.append(Finding(run.name, rank, answers))
        text, picture = self.show_query(row)
        return Query(text, self.show_answer(int(np.argmax(right))), findings, picture)

    def _answer(self, row: int, score: float, right: bool) -> Answer:
        caption, picture = self.show_answer(row)
        return Answer(caption, score, right, picture)


def _sides(comparison: Comparison) -> tuple[_Side, _Side]:
    corpus = comparison.corpus
    ranks = [run.result.folds[0] for run in comparison.runs]

    @functools.cache
    def image(row: int) -> tuple[str, str | None]:
        return corpus.image_ids[row], image_thumbnail(corpus, row)

    def text(row: int) -> tuple[str, str | None]:
        return corpus.texts[row], None

    images, texts = corpus.image_groups, corpus.text_groups
    image_ranks, text_ranks = np.stack([each.images for each in ranks]), np.stack([each.texts for each in ranks])
    return (
        _Side("image to text", image_ranks, images, texts, _text_scores, image, text),
        _Side("text to image", text_ranks, texts, images, _image_scores, text, image),
    )


@torch.inference_mode()
def _text_scores(encoded: Encoded, image: int) -> Tensor:
    """The scores of all texts with one image."""
    return encoded_score(encoded).against(slice(0, len(encoded.texts)))(slice(image, image + 1))[0]


@torch.inference_mode()
def _image_scores(encoded: Encoded, text: int) -> Tensor:
    """The scores of all images with one text."""
    return encoded_score(encoded).against(slice(text, text + 1))(slice(0, len(encoded.images)))[:, 0]
