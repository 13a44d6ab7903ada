from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.metrics.paired_difference import Difference, paired_difference
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.significance import bootstrap_intervals


def some_ranks(groups: int, seed: int) -> Ranks:
    """Groups of different sizes and random names, their images and texts in random order."""
    random = np.random.default_rng(seed)
    names = random.choice(10_000, groups, replace=False)
    images = random.permutation(np.repeat(names, random.integers(1, 4, groups)))
    texts = random.permutation(np.repeat(names, random.integers(1, 7, groups)))
    found = random.integers(1, 20, len(images)), random.integers(1, 20, len(texts))
    return Ranks(*found, images, texts, np.arange(len(images)), np.arange(len(texts)))


def other_than(ranks: Ranks, seed: int) -> Ranks:
    random = np.random.default_rng(seed)
    images, texts = (random.integers(1, 20, len(old)) for old in (ranks.images, ranks.texts))
    return replace(ranks, images=images, texts=texts)


def drawn_recall(found, query_groups, drawn, cutoff):
    hits = [rank <= cutoff for group in drawn for rank in found[query_groups == group]]
    return 100 * sum(hits) / len(hits)


@pytest.mark.parametrize("sizes", [[12], [9, 14]], ids=["gallery", "folds"])
def test_intervals_equal_a_slow_loop_that_draws_both_together(sizes):
    first = [some_ranks(groups, seed) for seed, groups in enumerate(sizes)]
    second = [other_than(ranks, 7) for ranks in first]
    random, draws, columns = np.random.default_rng(3), 40, []
    totals = np.zeros((draws, 2))
    for one, other in zip(first, second, strict=True):
        names = sorted(set(one.image_groups))
        for draw in range(draws):
            taken = [names[place] for place in random.integers(len(names), size=len(names))]
            for column, (side, groups) in enumerate((("images", "image_groups"), ("texts", "text_groups"))):
                of = [drawn_recall(getattr(r, side), getattr(r, groups), taken, 5) for r in (one, other)]
                totals[draw, column] += (of[1] - of[0]) / len(sizes)
    columns = [totals[:, 0], totals[:, 1], totals.sum(1)]

    found = paired_difference(first, second, cutoffs=[5], level=0.8, draws=draws, seed=3)

    assert list(found.differences) == ["i2t_r5", "t2i_r5", "rsum"]
    for column, each in zip(columns, found.differences.values(), strict=True):
        assert (each.low, each.high) == pytest.approx((np.quantile(column, 0.1), np.quantile(column, 0.9)))


def test_the_value_is_the_difference_of_the_recalls():
    groups = np.arange(4)
    first = Ranks(np.array([1, 1, 9, 9]), np.array([1, 9, 9, 9]), groups, groups, groups, groups)
    second = Ranks(np.array([1, 1, 1, 9]), np.array([9, 9, 9, 9]), groups, groups, groups, groups)
    values = {name: each.value for name, each in paired_difference([first], [second], cutoffs=[1]).differences.items()}
    assert values == {"i2t_r1": 25, "t2i_r1": -25, "rsum": 0}


def test_a_small_steady_gain_is_significant_although_the_separate_intervals_overlap():
    groups = np.arange(200)
    first = np.where(groups % 2, 1, 9)
    second = np.where(groups < 16, 1, first)  # 8 of 200 more
    one, other = (Ranks(ranks, ranks, groups, groups, groups, groups) for ranks in (first, second))
    gain = paired_difference([one], [other], cutoffs=[1]).differences["i2t_r1"]
    assert gain.value == pytest.approx(4)
    assert gain.is_significant
    lower, upper = (bootstrap_intervals([ranks], cutoffs=[1]).bounds["i2t_r1"] for ranks in (one, other))
    assert lower[1] > upper[0]


@given(st.integers(0, 1000))
def test_swapping_changes_the_sign_and_a_model_never_beats_itself(seed):
    one = some_ranks(8, seed)
    other = other_than(one, seed)
    there, back = (paired_difference(*sides, draws=30).differences for sides in (([one], [other]), ([other], [one])))
    for name in there:
        assert there[name].value == pytest.approx(-back[name].value)
        assert (there[name].low, there[name].high) == pytest.approx((-back[name].high, -back[name].low))
    for same in paired_difference([one], [one], draws=30).differences.values():
        assert (same.value, same.low, same.high, same.is_significant) == (0, 0, 0, False)


def test_a_difference_is_significant_if_its_interval_excludes_0():
    assert Difference(1.0, 0.1, 2.0).is_significant
    assert Difference(-1.0, -2.0, -0.1).is_significant
    assert not Difference(1.0, 0.0, 2.0).is_significant
    assert not Difference(-1.0, -2.0, 0.0).is_significant


def test_json_has_the_differences_by_name_and_the_draws():
    one = some_ranks(5, 0)
    stored = json.loads(json.dumps(paired_difference([one], [other_than(one, 1)], draws=10, seed=4).to_json()))
    assert (stored["level"], stored["draws"], stored["seed"]) == (0.95, 10, 4)
    assert set(stored["differences"]["rsum"]) == {"value", "low", "high", "found"}


def test_refusals():
    one = some_ranks(5, 0)
    with pytest.raises(ScoreError, match="same images and texts"):
        paired_difference([one], [some_ranks(5, 1)])
    with pytest.raises(ScoreError, match="same images and texts"):
        paired_difference([one], [one, one])
    with pytest.raises(ScoreError, match="level between 0 and 1"):
        paired_difference([one], [one], level=1.0)
    with pytest.raises(ScoreError, match="at least one draw"):
        paired_difference([one], [one], draws=0)


def with_precisions(ranks: Ranks, seed: int) -> Ranks:
    random = np.random.default_rng(seed)
    precisions = random.random(len(ranks.images)), random.random(len(ranks.texts))
    return replace(ranks, image_precisions=precisions[0], text_precisions=precisions[1])


def test_map_is_compared_if_both_have_it():
    plain = some_ranks(10, 0)
    one, other = with_precisions(plain, 1), with_precisions(plain, 2)
    found = paired_difference([one], [other], draws=30)
    assert {"i2t_map", "t2i_map"} <= found.differences.keys()
    assert found.t2i_map.value == pytest.approx(100 * (other.text_precisions.mean() - one.text_precisions.mean()))
    assert found.i2t_map.low < found.i2t_map.value < found.i2t_map.high
    without = paired_difference([one], [plain], draws=30)
    assert list(without.differences) == [name for name in found.differences if not name.endswith("map")]


def test_a_difference_is_an_attribute_by_its_name():
    found = paired_difference([some_ranks(5, 0)], [other_than(some_ranks(5, 0), 1)], draws=10)
    assert found.i2t_r5 == found.differences["i2t_r5"]
    assert "t2i_r1" in dir(found)
