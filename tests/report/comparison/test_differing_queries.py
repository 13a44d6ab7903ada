from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.model import Model
from diptych.report.comparison.compare import compare
from diptych.report.comparison.differing_queries import best_run, differing_queries, first_answers, select_queries


@st.composite
def scored(draw):
    """Few different scores, so that many tie, with at least one right answer."""
    answers = draw(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=9))
    scores = np.array([score for score, _ in answers], np.float32)
    right = np.array([right for _, right in answers])
    right[draw(st.integers(0, len(answers) - 1))] = True
    return scores, right


def ranked(scores, right) -> int:
    """1 and the number of negatives that score at least as high as the best positive."""
    best = max(score for score, own in zip(scores, right, strict=True) if own)
    return 1 + sum(score >= best for score, own in zip(scores, right, strict=True) if not own)


@given(scored(), st.integers(1, 5))
def test_first_answers_are_sorted_with_negatives_before_positives_of_equal_score(answers, count):
    scores, right = answers
    wanted = sorted(range(len(scores)), key=lambda row: (-scores[row], right[row], row))
    assert first_answers(scores, right, ranked(scores, right), count) == wanted[:count]


@given(scored(), st.data())
def test_the_first_correct_answer_is_at_the_given_rank(answers, data):
    scores, right = answers
    rank = data.draw(st.integers(1, 1 + int(np.sum(~right))))
    found = first_answers(scores, right, rank, count=len(scores))
    assert sorted(found) == list(range(len(scores)))
    assert [bool(right[row]) for row in found].index(True) == rank - 1


def test_the_answers_are_the_best_ones_and_agree_with_the_rank(three, compared_corpus):
    test = compared_corpus.split("test")
    scores = []
    for run in three.runs:
        trained = Model.load(run.path, "cpu")
        scores.append(
            trained.matcher.score(
                trained.torch_engine.encode_corpus_images(test, 0)[0], trained.torch_engine.text_tensor(test.texts)
            )
        )
    images, texts = differing_queries(three)
    assert (images.direction, texts.direction) == ("image to text", "text to image")
    for side, queries, answers in ((images, test.image_ids, test.texts), (texts, test.texts, test.image_ids)):
        for query in (query for group in side.groups for query in group.queries):
            row = list(queries).index(query.text)
            for run, matrix, finding in zip(three.runs, scores, query.answers_by_run, strict=True):
                line = matrix.detach()[row] if side is images else matrix.detach()[:, row]
                ranks = run.result.folds[0].images if side is images else run.result.folds[0].texts
                assert (finding.run, finding.rank) == (run.name, ranks[row])
                best = torch.sort(line, descending=True).values[:3]
                assert [answer.score for answer in finding.answers] == pytest.approx(best.tolist(), abs=1e-6)
                for answer in finding.answers:
                    assert answer.score == pytest.approx(float(line[list(answers).index(answer.caption)]), abs=1e-6)
                places = [answer.correct for answer in finding.answers]
                assert (places.index(True) + 1 if True in places else 4) == min(finding.rank, 4)


def test_answers_of_the_same_group_are_correct(three):
    corpus = three.corpus
    group_of = dict(zip(corpus.texts, corpus.text_groups, strict=True))
    group_of |= dict(zip(corpus.image_ids, corpus.image_groups, strict=True))
    for side in differing_queries(three):
        for query in (query for group in side.groups for query in group.queries):
            assert group_of[query.ground_truth[0]] == group_of[query.text]
            for answer in (answer for finding in query.answers_by_run for answer in finding.answers):
                assert answer.correct == (group_of[answer.caption] == group_of[query.text])
            pictured = [query.picture, query.ground_truth[1], query.answers_by_run[0].answers[0].picture]
            own = [True, False, False] if side.direction == "image to text" else [False, True, True]
            assert [each is not None and each.startswith("data:image/") for each in pictured] == own


def test_ties_are_shown_consistently_with_the_rank(three):
    flat = tuple(
        replace(run, encoded=replace(run.encoded, texts=torch.zeros_like(run.encoded.texts))) for run in three.runs
    )
    for side in differing_queries(replace(three, runs=flat)):
        for query in (query for group in side.groups for query in group.queries):
            for finding in query.answers_by_run:
                places = [answer.correct for answer in finding.answers]
                assert (places.index(True) + 1 if True in places else 4) == min(finding.rank, 4)


def with_rsums(comparison, *rsums):
    """The comparison as if its runs had reached these sums of recalls."""
    runs = []
    for run, rsum in zip(comparison.runs, rsums, strict=True):
        way = replace(run.result.metrics.image_to_text, recalls={1: rsum})
        none = replace(run.result.metrics.text_to_image, recalls={})
        metrics = replace(run.result.metrics, image_to_text=way, text_to_image=none)
        runs.append(replace(run, result=replace(run.result, metrics=metrics)))
    return replace(comparison, runs=tuple(runs))


def test_the_best_run_is_compared_with_the_baseline(three):
    assert best_run(with_rsums(three, 50, 20, 30)) == 2
    assert best_run(with_rsums(three, 10, 30, 20)) == 1


def test_queries_are_selected_by_the_ratio_of_their_ranks(three):
    comparison = with_rsums(three, 10, 20, 30)
    ranks = np.array(
        [
            [9, 1, 8, 1, 1, 1, 2, 5, 30],
            [1, 1, 1, 9, 1, 1, 1, 5, 2],
            [1, 8, 4, 1, 1, 2, 2, 5, 30],
        ]
    )
    groups = np.array([0, 1, 0, 3, 4, 5, 6, 7, 8])
    chosen = dict(select_queries(comparison, ranks, groups, seed=0, shown=2))
    assert list(chosen) == [
        "third|run is better than plain",
        "plain is better than third|run",
        "Ranked first by one run, far lower by another",
        "Random sample, seed 0",
    ]
    better, worse, apart, drawn = chosen.values()
    assert better == [0]  # row 2 gains as well, but is of the same group
    assert worse == [1, 5]
    assert apart == [3, 2]  # by 9 and by 8; row 8 is further apart, but no run has it first
    assert set(drawn) <= {4, 6, 7, 8}
    assert len(drawn) == 2
    others = {tuple(list(select_queries(comparison, ranks, groups, seed, 2))[-1][1]) for seed in range(9)}
    assert len(others) > 1


def test_two_runs_have_two_headings_and_a_random_sample(two, compared_runs, compared_corpus):
    for side in differing_queries(two, seed=3, shown=2):
        assert [group.heading for group in side.groups] == [
            "<b>other is better than plain",
            "plain is better than <b>other",
            "Random sample, seed 3",
        ]
        shown = [query.text for group in side.groups for query in group.queries]
        assert len(set(shown)) == len(shown)
        for group, sign in zip(side.groups[:2], (1, -1), strict=True):
            ratios = [(query.answers_by_run[0].rank / query.answers_by_run[1].rank) ** sign for query in group.queries]
            assert min(ratios, default=2) > 1
            assert ratios == sorted(ratios, reverse=True)
    same = replace(two.runs[0], name="again", difference=two.runs[1].difference)
    for side in differing_queries(replace(two, runs=(two.runs[0], same))):
        assert [len(group.queries) for group in side.groups] == [0, 0, 4]


def test_folds_are_refused(compared_runs, compared_corpus):
    folds = compare(compared_runs[:2], compared_corpus, folds=2, device="cpu")
    with pytest.raises(ScoreError, match="one gallery"):
        differing_queries(folds)
