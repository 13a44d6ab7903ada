"""Differences pooled over seeds, against slow loops and scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from diptych.errors import ScoreError
from diptych.evaluation.metrics.pooled_difference import (
    PooledDifference,
    pool_differences,
    student_interval,
    student_quantile,
)


@given(st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99]), st.integers(1, 60))
def test_quantiles_are_those_of_students_distribution(level, freedom):
    assert student_quantile(level, freedom) == pytest.approx(student.ppf((1 + level) / 2, freedom), rel=1e-7)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_the_interval_over_seeds_is_scipys(values):
    mean, error = np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))
    low, high = student_interval(values)
    if error < 1e-9:
        assert (low, high) == pytest.approx((mean, mean), abs=1e-6)
    else:
        assert (low, high) == pytest.approx(student.interval(0.95, len(values) - 1, mean, error), abs=1e-6)


def test_draws_are_averaged_over_seeds_before_their_percentiles():
    random = np.random.default_rng(0)
    drawn = [random.normal(size=200) for _ in range(3)]
    pooled = pool_differences([1.0, 2.0, 6.0], drawn, level=0.8)
    means = [sum(each[draw] for each in drawn) / 3 for draw in range(200)]
    assert pooled.over_queries == pytest.approx((np.quantile(means, 0.1), np.quantile(means, 0.9)))
    assert pooled.value == 3.0
    assert pooled.by_seed == (1.0, 2.0, 6.0)


def test_what_cannot_be_computed_is_missing():
    assert pool_differences([2.0], None) == PooledDifference(2.0, (2.0,), None, None)
    assert not pool_differences([2.0], None).is_significant
    assert pool_differences([2.0, 2.1], None).over_queries is None
    for by_seed, drawn in (([], None), ([1.0], []), ([1.0, 2.0], [np.zeros(2)])):
        with pytest.raises(ScoreError, match="at least one seed, and the draws of every seed"):
            pool_differences(by_seed, drawn)


@pytest.mark.parametrize(
    ("queries", "seeds", "found"),
    [((1, 2), (1, 2), True), ((-2, -1), (1, 2), True), ((-1, 2), (1, 2), False), ((1, 2), (0, 2), False)],
)
def test_a_difference_is_found_if_every_interval_excludes_0(queries, seeds, found):
    difference = PooledDifference(1.5, (1.0, 2.0), queries, seeds)
    assert difference.is_significant is found
    assert difference.to_json() == {
        "value": 1.5,
        "by_seed": [1.0, 2.0],
        "over_queries": list(queries),
        "over_seeds": list(seeds),
        "found": found,
    }
