from __future__ import annotations

import json

import numpy as np
import pytest

from diptych.errors import ScoreError
from diptych.evaluation.metrics import significance
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.significance import bootstrap_intervals, group_means


def some_ranks(groups: int, seed: int) -> Ranks:
    """Groups of different sizes and random names, their images and texts in random order."""
    random = np.random.default_rng(seed)
    names = random.choice(10_000, groups, replace=False)
    images = random.permutation(np.repeat(names, random.integers(1, 4, groups)))
    texts = random.permutation(np.repeat(names, random.integers(1, 7, groups)))
    found = random.integers(1, 20, len(images)), random.integers(1, 20, len(texts))
    return Ranks(*found, images, texts, np.arange(len(images)), np.arange(len(texts)))


def drawn_recall(found: np.ndarray, query_groups: np.ndarray, drawn: list[int], cutoff: int) -> float:
    """The recall of the queries of the drawn groups, one after the other."""
    hits = [rank <= cutoff for group in drawn for rank in found[query_groups == group]]
    return 100 * sum(hits) / len(hits)


def slow_intervals(folds: list[Ranks], cutoffs: list[int], level: float, draws: int, seed: int):
    random = np.random.default_rng(seed)
    totals = np.zeros((draws, 2 * len(cutoffs)))
    for fold in folds:
        names = sorted(set(fold.image_groups))
        for draw in range(draws):
            drawn = [names[place] for place in random.integers(len(names), size=len(names))]
            for column, cutoff in enumerate(cutoffs):
                totals[draw, column] += drawn_recall(fold.images, fold.image_groups, drawn, cutoff)
                totals[draw, column + len(cutoffs)] += drawn_recall(fold.texts, fold.text_groups, drawn, cutoff)
    columns = [*(totals / len(folds)).T, (totals / len(folds)).sum(axis=1)]
    return [(np.quantile(column, (1 - level) / 2), np.quantile(column, (1 + level) / 2)) for column in columns]


@pytest.mark.parametrize("weights", [10, 1 << 22])
@pytest.mark.parametrize("sizes", [[12], [9, 14]])
def test_intervals_equal_a_slow_loop(weights: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(significance, "MAX_WEIGHTS", weights)
    folds = [some_ranks(groups, seed) for seed, groups in enumerate(sizes)]

    fast = bootstrap_intervals(folds, cutoffs=[1, 10], level=0.8, draws=40, seed=3)
    slow = slow_intervals(folds, [1, 10], level=0.8, draws=40, seed=3)

    assert list(fast.bounds) == ["i2t_r1", "i2t_r10", "t2i_r1", "t2i_r10", "rsum"]
    assert list(fast.bounds.values()) == [pytest.approx(bound) for bound in slow]


def test_intervals_cover_the_truth_if_captions_of_an_image_succeed_together():
    # Drawing captions one by one would take 300 for independent where 60 are: it covers 60% here.
    random = np.random.default_rng(0)
    image_groups, text_groups = np.arange(60), np.repeat(np.arange(60), 5)
    covered = {"i2t_r1": 0, "t2i_r1": 0, "rsum": 0}
    trials = 300
    for seed in range(trials):
        images = np.where(random.random(60) < 0.6, 1, 99)
        texts = np.repeat(np.where(random.random(60) < 0.4, 1, 99), 5)
        fold = Ranks(images, texts, image_groups, text_groups, image_groups, np.arange(300))
        bounds = bootstrap_intervals([fold], cutoffs=[1], draws=400, seed=seed).bounds
        for name, truth in (("i2t_r1", 60), ("t2i_r1", 40), ("rsum", 100)):
            low, high = bounds[name]
            covered[name] += low <= truth <= high
    assert all(0.90 <= hits / trials <= 0.985 for hits in covered.values()), covered


def test_the_sum_is_drawn_with_both_directions_together():
    # The texts of a group fail exactly where its image succeeds: recalls vary, their sum cannot.
    groups = np.arange(100)
    images = np.where(groups % 2, 1, 99)
    bounds = bootstrap_intervals([Ranks(images, 100 - images, groups, groups, groups, groups)], cutoffs=[1]).bounds
    assert bounds["rsum"] == pytest.approx((100, 100))
    assert bounds["i2t_r1"][1] - bounds["i2t_r1"][0] > 10


def test_folds_are_drawn_separately_and_averaged():
    one = some_ranks(100, seed=0)
    single, several = bootstrap_intervals([one]).bounds["rsum"], bootstrap_intervals([one] * 4).bounds["rsum"]
    assert (several[1] - several[0]) == pytest.approx((single[1] - single[0]) / 2, rel=0.2)


def test_the_seed_determines_the_draws_and_a_higher_level_widens():
    fold = [some_ranks(50, seed=0)]
    assert bootstrap_intervals(fold, seed=1) == bootstrap_intervals(fold, seed=1)
    assert bootstrap_intervals(fold, seed=1).bounds != bootstrap_intervals(fold, seed=2).bounds
    narrow, wide = (bootstrap_intervals(fold, level=level).bounds["rsum"] for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_certain_recall_has_no_width():
    groups = np.arange(30)
    fold = Ranks(np.ones(30, np.int64), np.full(30, 11), groups, groups, groups, groups)
    bounds = bootstrap_intervals([fold]).bounds
    assert bounds["i2t_r1"] == (100, 100)
    assert bounds["t2i_r10"] == (0, 0)
    assert bounds["rsum"] == (300, 300)


def test_json_has_the_bounds_by_name_and_the_draws():
    value = bootstrap_intervals([some_ranks(5, seed=0)], cutoffs=[1], draws=10, seed=4).to_json()
    assert json.loads(json.dumps(value)) == value
    assert (value["level"], value["draws"], value["seed"]) == (0.95, 10, 4)
    assert list(value["bounds"]) == ["i2t_r1", "t2i_r1", "rsum"]


@pytest.mark.parametrize("wrong", [{"level": 95}, {"level": 0}, {"draws": 0}])
def test_an_invalid_level_or_number_of_draws_is_refused(wrong):
    with pytest.raises(ScoreError, match="between 0 and 1"):
        bootstrap_intervals([some_ranks(5, seed=0)], **wrong)


def test_an_interval_is_an_attribute_by_the_name_of_its_metric():
    found = bootstrap_intervals([some_ranks(9, 0)], draws=10)
    assert found.t2i_r10 == found.bounds["t2i_r10"]
    assert {"i2t_r1", "rsum"} <= set(dir(found))


def test_a_seed_below_zero_is_refused():
    with pytest.raises(ScoreError, match=r"^seed -1; give an integer from 0 on$"):
        bootstrap_intervals([some_ranks(9, 0)], seed=-1)


def test_tables_with_queries_of_some_groups_share_the_draws():
    random = np.random.default_rng(0)
    names = np.array([3, 5, 8, 9, 11, 20, 21, 22])
    groups = [random.permutation(np.repeat(names[:6], 4)), random.permutation(names[2:]), np.repeat(names[1:7], 2)]
    tables = [random.normal(size=(len(each), columns)) for each, columns in zip(groups, (2, 1, 3), strict=True)]
    found = group_means(tables, groups, 60, np.random.default_rng(7))
    drawn = names[np.random.default_rng(7).integers(8, size=(60, 8))]
    for means, draw in zip(found, drawn, strict=True):
        rows = [np.concatenate([np.flatnonzero(of_query == group) for group in draw]) for of_query in groups]
        expected = np.hstack([table[each].mean(0) for table, each in zip(tables, rows, strict=True)])
        assert means.tolist() == pytest.approx(expected.tolist())
