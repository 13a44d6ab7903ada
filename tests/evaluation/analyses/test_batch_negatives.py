"""Sampling of hard negatives: the formula's figures, and measurements against loops over single scores."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.analyses import batch_negatives as analysis
from diptych.evaluation.analyses.batch_negatives import batch_for, measured_misses, miss_probability, negatives_for
from diptych.evaluation.metrics.scores import Score, embedding_score, matrix_score


def test_the_papers_figures_and_what_its_formula_gives():
    assert negatives_for(0.9, 0.01) == 44
    assert negatives_for(0.999, 0.001) == 6905  # the paper says 1%, which takes fewer
    assert negatives_for(0.999, 0.01) == 4603
    assert (batch_for(0.9), batch_for(0.999), batch_for(0.999, 0.001)) == (45, 4604, 6906)
    assert miss_probability(44, 0.9) > 0.01 > miss_probability(45, 0.9)
    assert miss_probability(128, 0.9) == pytest.approx(math.exp(127 * math.log(0.9)))
    assert miss_probability(1, 0.9) == 1


@given(st.floats(0.01, 0.999), st.floats(0.001, 0.99))
def test_the_batch_is_the_smallest_that_suffices(percentile, at_most):
    batch = batch_for(percentile, at_most)
    assert miss_probability(batch, percentile) <= at_most
    assert batch == 2 or miss_probability(batch - 1, percentile) > at_most


def test_the_prediction_agrees_with_random_draws():
    random = np.random.default_rng(0)
    thrown = random.random((20_000, 9))  # nine negatives, each with its percentile
    assert (thrown < 0.8).all(1).mean() == pytest.approx(miss_probability(10, 0.8), abs=0.01)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: miss_probability(10, 90), "such as 0.9 for the 90th"),
        (lambda: miss_probability(10, 1.0), "between 0 and 1"),
        (lambda: miss_probability(0, 0.9), "at least 1"),
        (lambda: negatives_for(0.9, 0), "such as 0.01"),
        (lambda: batch_for(0.0), "between 0 and 1"),
    ],
    ids=["percent", "one", "empty", "certain", "zero"],
)
def test_invalid_arguments_are_refused(call, words):
    with pytest.raises(ScoreError, match=words):
        call()


def reference(scores, query_rows, query_groups, answer_rows, answer_groups, percentile):
    """One batch: for each query the percentile of its hardest negative there, and whether it lies below the top."""
    missed, percentiles = [], []
    for query in query_rows:
        negatives = [row for row in range(len(answer_groups)) if answer_groups[row] != query_groups[query]]
        drawn = [row for row in answer_rows if row in negatives]
        if drawn:
            hardest = max(scores[query][row] for row in drawn)
            higher_or_equal = [row for row in negatives if scores[query][row] >= hardest]
            missed.append(len(higher_or_equal) > len(negatives) * (1 - percentile) + 1e-6)
            percentiles.append(1 - len(higher_or_equal) / len(negatives))
    return missed, percentiles


@st.composite
def corpora(draw):
    groups = draw(st.integers(2, 5))
    image_groups = draw(st.permutations([*range(groups), *draw(st.lists(st.integers(0, groups - 1), max_size=5))]))
    text_groups = draw(st.permutations([*range(groups), *draw(st.lists(st.integers(0, groups - 1), max_size=9))]))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    scores = random.normal(size=(len(image_groups), len(text_groups)))
    if draw(st.booleans()):
        scores = scores.round(0)  # ties
    return scores.astype(np.float32), np.array(image_groups), np.array(text_groups)


@settings(max_examples=40)
@given(corpora(), st.data())
def test_measurements_equal_the_loops_in_any_blocks(corpus, data):
    scores, image_groups, text_groups = corpus
    batch = data.draw(st.integers(2, len(text_groups)))
    percentile = data.draw(st.sampled_from([0.1, 0.5, 0.75, 0.9]))
    seed, block = data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 20, 10_000]))
    expected = ([], []), ([], [])
    for images, texts in analysis._draw_batches(image_groups, text_groups, batch, 3, seed):
        for side, found in (
            (expected[0], reference(scores, images, image_groups, texts, text_groups, percentile)),
            (expected[1], reference(scores.T, texts, text_groups, images, image_groups, percentile)),
        ):
            side[0].extend(found[0])
            side[1].extend(found[1])
    options = {"batch": batch, "percentile": percentile, "draws": 3, "seed": seed, "block": block}
    if not expected[0][0]:
        with pytest.raises(ScoreError, match="larger batches"):
            measured_misses(matrix_score(torch.from_numpy(scores)), image_groups, text_groups, **options)
        return
    result = measured_misses(matrix_score(torch.from_numpy(scores)), image_groups, text_groups, **options)
    for measured, (missed, percentiles) in zip((result.image_to_text, result.text_to_image), expected, strict=True):
        assert measured.queries == len(missed)
        assert measured.share == pytest.approx(np.mean(missed))
        assert measured.hardest == pytest.approx(np.mean(percentiles))
        assert 0 <= measured.interval[0] <= measured.interval[1] <= 1


def test_batches_are_different_texts_each_with_any_image_of_its_group():
    image_groups, text_groups = np.array([2, 0, 1, 0, 2, 2]), np.array([0, 1, 2, 0, 1, 2, 2])
    seen = set()
    for images, texts in analysis._draw_batches(image_groups, text_groups, 5, 60, 3):
        assert len(set(texts.tolist())) == 5
        assert (image_groups[images] == text_groups[texts]).all()
        seen |= set(zip(images.tolist(), texts.tolist(), strict=True))
    assert len(seen) == 2 * 2 + 1 * 2 + 3 * 3  # every pair of a group


def one_to_one(scores, **options):
    groups = np.arange(len(scores))
    return measured_misses(matrix_score(torch.from_numpy(scores)), groups, groups, **options)


def test_uncorrelated_scores_miss_as_predicted():
    scores = np.random.default_rng(1).normal(size=(500, 500)).astype(np.float32)
    result = one_to_one(scores, batch=20, percentile=0.9, draws=80)
    assert result.predicted == pytest.approx(0.9**19)
    assert result.predicted_hardest == pytest.approx(19 / 20)
    for side in (result.image_to_text, result.text_to_image):
        assert side.share == pytest.approx(result.predicted, abs=0.03)
        assert side.interval[0] < result.predicted < side.interval[1]
        assert side.hardest == pytest.approx(result.predicted_hardest, abs=0.01)


def test_rounding_does_not_move_the_percentile():
    assert 0.55 * 100 > 55
    scores = np.random.default_rng(1).random((101, 101)).astype(np.float32)  # 100 negatives each, the 55th at the edge
    groups, missed = np.arange(101), []
    for images, texts in analysis._draw_batches(groups, groups, 2, 200, 0):
        missed += reference(scores, images, groups, texts, groups, 0.55)[0]
    assert one_to_one(scores, batch=2, percentile=0.55, draws=200).image_to_text.share == pytest.approx(np.mean(missed))


def test_queries_that_find_the_same_negatives_hard_miss_together():
    independent = np.random.default_rng(1).normal(size=(300, 300)).astype(np.float32)
    agreed = np.tile(independent[:1], (300, 1))  # all images rank the texts alike, all texts tie on all images
    widths = []
    for scores in (independent, agreed):
        low, high = one_to_one(scores, batch=20, percentile=0.9, draws=40).image_to_text.interval
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]
    tied = one_to_one(agreed, batch=20, percentile=0.9, draws=3).text_to_image
    assert (tied.share, tied.hardest) == (1, 0)  # nothing is harder than anything


def test_an_image_that_is_hard_for_all_and_drawn_often_is_missed_less_than_predicted():
    image_groups, text_groups = np.arange(20), np.array([0] * 40 + [*range(1, 20)] * 2)
    scores = np.random.default_rng(2).random((20, len(text_groups))).astype(np.float32)
    scores[0] = 2.0  # the first image, of which half the texts are, is the hardest for all others
    result = measured_misses(
        matrix_score(torch.from_numpy(scores)), image_groups, text_groups, batch=6, percentile=0.9, draws=100
    )
    missed = []
    for images, texts in analysis._draw_batches(image_groups, text_groups, 6, 100, 0):
        missed += reference(scores.T, texts, text_groups, images, image_groups, 0.9)[0]
    assert result.text_to_image.share == pytest.approx(np.mean(missed))
    assert result.text_to_image.interval[1] < result.predicted


def test_encodings_are_scored_in_blocks():
    random = torch.Generator().manual_seed(0)
    images, texts = torch.randn(30, 4, generator=random), torch.randn(90, 4, generator=random)
    whole = embedding_score(lambda left, right: left @ right.t(), images, texts)
    largest = 0

    def against(columns):
        tile = whole.against(columns)

        def watched(rows):
            nonlocal largest
            scores = tile(rows)
            largest = max(largest, scores.numel())
            return scores

        return watched

    groups = np.arange(30), np.repeat(np.arange(30), 3)
    result = measured_misses(Score(30, 90, against), *groups, batch=10, draws=4, block=60)
    assert largest <= 60
    assert result.image_to_text == measured_misses(whole, *groups, batch=10, draws=4).image_to_text
    assert result != measured_misses(whole, *groups, batch=10, draws=4, seed=1)
    assert json.loads(json.dumps(result.to_json()))["text_to_image"]["queries"] == 40


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": 5}, "10 batches of 5 pairs from 4 texts"),
        ({"batch": 1}, "of 1 pairs from"),
        ({"draws": 0}, "0 batches"),
        ({"percentile": 90}, "90th"),
        ({"text_groups": np.array([0, 1, 2, 9])}, "image 3: no text"),
        ({"text_groups": np.arange(3)}, "differ in number"),
        ({"scores": torch.full((4, 4), torch.nan)}, "not a number"),
    ],
    ids=["large", "alone", "none", "percent", "unmatched", "other corpus", "nan"],
)
def test_refusals_are_one_line(change, words):
    given = {"scores": torch.eye(4), "text_groups": np.arange(4), "batch": 3, **change}
    with pytest.raises(ScoreError, match=words) as raised:
        measured_misses(matrix_score(given.pop("scores")), np.arange(4), **given)
    assert "\n" not in str(raised.value)
