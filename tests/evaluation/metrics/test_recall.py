from __future__ import annotations

import doctest
import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.metrics import recall
from diptych.evaluation.metrics.ranks import Ranks, ranks
from diptych.evaluation.metrics.recall import (
    DirectionMetrics,
    Metrics,
    check_cutoffs,
    direction_metrics,
    mean_metrics,
    median_rank,
    metrics_from_ranks,
    recall_at,
)
from diptych.evaluation.metrics.scores import matrix_score

some_ranks = st.lists(st.integers(1, 60), min_size=1, max_size=30).map(np.array)


def both(images: list[int], texts: list[int]) -> Ranks:
    rows = np.arange(len(images)), np.arange(len(texts))
    return Ranks(np.array(images), np.array(texts), *rows, *rows)


def hit_rate(scores: torch.Tensor, positives: torch.Tensor, cutoff: int) -> float:
    """The recall at K of torchmetrics, for the rows of a score matrix; scores must be positive and differ."""
    queries = torch.arange(len(scores))[:, None].expand_as(scores)
    from torchmetrics.retrieval import RetrievalHitRate  # imports torchvision where that is installed

    metric = RetrievalHitRate(top_k=cutoff)
    return 100 * float(metric(scores.flatten(), positives.flatten(), indexes=queries.flatten()))


@pytest.mark.parametrize("seed", range(3))
def test_recalls_agree_with_torchmetrics(torchvision, seed: int):
    generator = torch.Generator().manual_seed(seed)
    image_groups, text_groups = torch.arange(60) // 2, torch.arange(240) % 30
    positives = image_groups[:, None] == text_groups
    # a permutation: no ties, which torchmetrics would break by position; from 1 on, because it drops scores below
    scores = 1.0 + torch.randperm(60 * 240, generator=generator).reshape(60, 240)
    scores[positives] += 1500.5
    found = metrics_from_ranks(ranks(matrix_score(scores), image_groups.numpy(), text_groups.numpy(), block=999))

    for cutoff in (1, 5, 10):
        ours = found.image_to_text.recalls[cutoff], found.text_to_image.recalls[cutoff]
        theirs = hit_rate(scores, positives, cutoff), hit_rate(scores.T, positives.T, cutoff)
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert 5 < found.image_to_text.recalls[1] < 95, "recalls at the ends would agree by chance"
    assert 5 < found.text_to_image.recalls[1] < 95


def test_a_perfect_model_has_every_recall_at_100():
    groups = np.arange(50), np.repeat(np.arange(50), 5)
    scores = torch.from_numpy(groups[0][:, None] == groups[1]).float()
    metrics = metrics_from_ranks(ranks(matrix_score(scores), *groups))
    assert metrics.rsum == 600
    assert metrics.image_to_text == metrics.text_to_image == DirectionMetrics({1: 100.0, 5: 100.0, 10: 100.0}, 1.0, 1.0)


def test_a_collapsed_model_is_not_above_chance():
    metrics = metrics_from_ranks(ranks(matrix_score(torch.ones(50, 250)), np.arange(50), np.repeat(np.arange(50), 5)))
    assert metrics.rsum == 0
    assert metrics.image_to_text.median == 246
    assert metrics.text_to_image.mean == 50


def test_metrics_are_named_by_their_direction():
    named = metrics_from_ranks(both(images=[1, 3, 8, 11], texts=[1, 1, 20])).to_json()
    assert named == pytest.approx(
        {
            "i2t_r1": 25,
            "i2t_r5": 50,
            "i2t_r10": 75,
            "i2t_median": 5,
            "i2t_mean": 5.75,
            "t2i_r1": 200 / 3,
            "t2i_r5": 200 / 3,
            "t2i_r10": 200 / 3,
            "t2i_median": 1,
            "t2i_mean": 22 / 3,
            "rsum": 350,
        }
    )
    assert json.loads(json.dumps(named)) == named


def test_cutoffs_can_be_chosen():
    assert list(metrics_from_ranks(both([1], [1]), cutoffs=(1, 100)).to_json()) == [
        *("i2t_r1", "i2t_r100", "i2t_median", "i2t_mean"),
        *("t2i_r1", "t2i_r100", "t2i_median", "t2i_mean"),
        "rsum",
    ]


def test_metrics_are_attributes_by_their_names():
    metrics = metrics_from_ranks(both([1, 3], [1, 20]), cutoffs=(1, 100))
    assert {name: getattr(metrics, name) for name in metrics.to_json()} == metrics.to_json()
    with pytest.raises(AttributeError, match=r"^Metrics has no i2t_r5; it has i2t_r1, i2t_r100, i2t_median, "):
        _ = metrics.i2t_r5


@pytest.mark.parametrize("cutoffs", [(), (0,), (1, 5, 1), (1, 2.5), (-3, 1), 5])
def test_cutoffs_must_be_different_positive_integers(cutoffs):
    with pytest.raises(ScoreError, match=rf"^cutoffs {re.escape(str(cutoffs))}; give different integers from 1 on"):
        check_cutoffs(cutoffs)
    check_cutoffs([1])


@given(some_ranks, st.integers(1, 60))
def test_recall_counts_the_ranks_up_to_the_cutoff(found: np.ndarray, cutoff: int):
    within = [rank for rank in found.tolist() if rank - cutoff <= 0]
    assert recall_at(found, cutoff) == pytest.approx(100 * len(within) / len(found))


@given(some_ranks)
def test_median_rank_is_the_lower_whole_rank(found: np.ndarray):
    ordered = sorted(found.tolist())
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    assert median_rank(found) == (low + high) // 2


def test_folds_have_equal_weights_whatever_their_size():
    folds = [Metrics(direction_metrics(np.array([1])), direction_metrics(np.array([2]))) for _ in range(1)]
    folds.append(Metrics(direction_metrics(np.array([4, 4, 8])), direction_metrics(np.array([1, 1, 1]))))
    mean = mean_metrics(folds)
    assert mean.image_to_text == DirectionMetrics(
        {1: 50.0, 5: pytest.approx(250 / 3), 10: 100.0}, 2.5, pytest.approx(19 / 6)
    )
    assert mean.text_to_image == DirectionMetrics({1: 50.0, 5: 100.0, 10: 100.0}, 1.5, 1.5)


def test_examples_in_the_documentation_hold():
    outcome = doctest.testmod(recall)
    assert outcome.attempted >= 4
    assert not outcome.failed
