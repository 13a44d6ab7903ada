from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.analyses.score_overlap import score_overlap, shared_area
from diptych.evaluation.metrics.scores import matrix_score

PAIRS = np.arange(4), np.arange(8) // 2


@st.composite
def cases(draw: st.DrawFn):
    """Scores in the middle of bins, some of them no cosines, groups of any size in any order, and a block."""
    names = draw(st.lists(st.integers(-9, 9), min_size=2, max_size=5, unique=True))
    images = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 3)))]))
    texts = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 4)))]))
    values = np.array(draw(st.lists(st.integers(0, 9), min_size=1, max_size=10)), np.float32)
    scores = np.random.default_rng(draw(st.integers(0, 2**32))).choice(values, (len(images), len(texts)))
    scores = scores / 5 - np.float32(0.9) if draw(st.booleans()) else 4 * scores - 18
    return scores, np.array(images), np.array(texts), draw(st.integers(1, 40))


def slow(scores, images, texts, bins, ends):
    """Numpy's histograms of all positives and all negatives at once."""
    same = images[:, None] == texts
    return [np.histogram(scores[mask].astype(float), bins, ends, density=True) for mask in (same, ~same)], same


@settings(max_examples=30)
@given(cases())
def test_both_distributions_are_those_of_all_pairs_at_once(case):
    scores, images, texts, block = case
    found = score_overlap(matrix_score(torch.from_numpy(scores)), images, texts, bins=10, draws=2, block=block)
    inside = np.abs(scores).max() <= 1
    ends = (-1, 1) if inside else (float(scores.min()), float(scores.max()))
    if ends[0] == ends[1]:
        assert found.shared == 1
        return
    bins = 10
    ((positive, edges), (negative, _)), same = slow(scores, images, texts, bins, ends)
    assert np.allclose(found.edges, edges)
    assert found.shared == pytest.approx(np.minimum(positive, negative).sum() * (edges[1] - edges[0]))
    assert np.allclose(found.positive_density, positive)
    assert np.allclose(found.negative_density, negative)
    assert (found.positives, found.negatives) == (same.sum(), (~same).sum())
    assert found.positive_mean == pytest.approx(scores[same].mean(dtype=float))
    assert found.negative_mean == pytest.approx(scores[~same].mean(dtype=float), abs=1e-6)
    assert 0 <= found.interval[0] <= found.interval[1] <= 1


def of(scores, **more):
    return score_overlap(matrix_score(torch.as_tensor(scores, dtype=torch.float32)), *PAIRS, **more)


def test_disjoint_distributions_share_nothing_and_equal_ones_everything():
    apart = torch.full((4, 8), -0.5)
    apart[torch.arange(8) // 2, torch.arange(8)] = 0.5
    assert (of(apart).shared, of(apart).interval) == (0, (0, 0))
    assert of(torch.full((4, 8), 0.25)).shared == 1
    assert of(torch.full((4, 8), -7.0)).shared == 1  # beyond cosines


def test_by_hand():
    scores = torch.full((4, 8), -0.5)  # negatives: 24
    scores[0, 2:] = 0.5  # six of them among the positives
    scores[torch.arange(8) // 2, torch.arange(8)] = 0.5
    scores[3, 6:] = -0.9  # two of eight positives below everything
    found = of(scores)
    assert found.shared == pytest.approx(6 / 24)  # of P three quarters lie there, of Q a quarter
    assert found.positive_mean == pytest.approx((6 * 0.5 - 2 * 0.9) / 8)
    assert found.negative_mean == pytest.approx((6 * 0.5 - 18 * 0.5) / 24)
    assert (found.positive_density * np.diff(found.edges)).sum() == pytest.approx(1)
    assert shared_area(np.array([1.0, 3.0]), np.array([0.0, 8.0])) == 0.75


def test_a_cosine_slightly_above_one_is_a_cosine():
    scores = torch.zeros(4, 8)
    scores[0, 0], scores[1, 0] = 1 + 1e-6, -1 - 1e-6
    found = of(scores, bins=4)
    assert found.edges.tolist() == [-1, -0.5, 0, 0.5, 1]
    assert found.positive_density.tolist() == [0, 0, 7 / 4, 1 / 4]


def test_wider_bins_share_more():
    scores = torch.randn(4, 8, generator=torch.Generator().manual_seed(3)) / 4
    assert of(scores, bins=1).shared == 1 > of(scores, bins=100).shared


def test_the_interval_is_that_of_drawn_groups():
    random = np.random.default_rng(1)
    scores = random.normal(0, 0.1, (60, 120)).astype(np.float32)
    groups = np.arange(60), np.arange(120) // 2
    scores[groups[1], np.arange(120)] += random.choice([0.0, 0.4], 60).astype(np.float32)[groups[1]]
    found = score_overlap(matrix_score(torch.from_numpy(scores)), *groups, bins=8, draws=400, seed=5)
    drawn = []
    for _ in range(400):
        rows = random.integers(60, size=60)
        same = np.concatenate([scores[row, 2 * row : 2 * row + 2] for row in rows])
        other = np.concatenate([np.delete(scores[row], [2 * row, 2 * row + 1]) for row in rows])
        counts = [np.histogram(values, 8, (-1, 1))[0].astype(float) for values in (same, other)]
        drawn.append(float(shared_area(*counts)))
    assert found.interval == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.02)
    assert found.interval[1] - found.interval[0] > 0.15  # half of the groups overlap, by chance more or fewer
    again = score_overlap(matrix_score(torch.from_numpy(scores)), *groups, bins=8, draws=400, seed=5, block=33)
    assert again.interval == found.interval


def test_a_draw_takes_a_groups_positives_and_negatives_together():
    scores = torch.linspace(-0.9, 0.9, 4)[:, None].expand(4, 8)  # an image scores all texts alike
    assert of(scores).interval == pytest.approx((1, 1))


def test_json_has_the_area_and_both_densities():
    found = of(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) / 3, bins=20)
    told = json.loads(json.dumps(found.to_json()))
    assert (told["s"], told["bins"], len(told["edges"])) == (found.shared, 20, 21)
    assert (told["positive_pairs"], told["negative_pairs"]) == (8, 24)
    assert told["interval"] == list(found.interval)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "minus-inf"])
def test_nan_and_infinite_scores_are_refused(wrong):
    scores = torch.zeros(4, 8)
    scores[2, 3] = wrong
    with pytest.raises(ScoreError, match="not a number" if np.isnan(wrong) else "finite"):
        of(scores)


def test_refusals():
    with pytest.raises(ScoreError, match="no negatives"):
        score_overlap(matrix_score(torch.zeros(2, 3)), np.zeros(2, int), np.zeros(3, int))
    with pytest.raises(ScoreError, match="at least one bin"):
        of(torch.zeros(4, 8), bins=0)
