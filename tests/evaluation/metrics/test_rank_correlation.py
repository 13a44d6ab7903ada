from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.evaluation.metrics import rank_correlation
from diptych.evaluation.metrics.rank_correlation import MEASURES, RankedPairs, correlations

stats = pytest.importorskip("scipy.stats", reason="compares with scipy, which is not installed")

COLUMN = st.integers(1, 8).flatmap(lambda values: st.lists(st.integers(0, values - 1), min_size=2, max_size=25))
COLUMNS = COLUMN.flatmap(
    lambda x: st.tuples(st.just(x), st.lists(st.integers(-3, 4), min_size=len(x), max_size=len(x)))
)


def by_definition(x, y):
    """Mean ranks, and a look at every pair of rows."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return [0, 0, 0]
    ranks = [
        [sum(other < value for other in column) + column.count(value) / 2 for value in column] for column in (x, y)
    ]
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    surplus = sum(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in pairs)
    untied = [sum(column[i] != column[j] for i, j in pairs) for column in (x, y)]
    fewer = min(len(set(x)), len(set(y)))
    return [
        np.corrcoef(*ranks)[0, 1],
        surplus / math.sqrt(untied[0] * untied[1]),
        2 * fewer * surplus / (len(x) ** 2 * (fewer - 1)),
    ]


@given(COLUMNS)
def test_the_three_equal_their_definitions(columns):
    assert list(correlations(*columns).values()) == pytest.approx(by_definition(*columns), abs=1e-12)


@given(COLUMNS)
def test_the_three_equal_those_of_scipy(columns):
    x, y = columns
    if len(set(x)) > 1 and len(set(y)) > 1:
        theirs = stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0], stats.kendalltau(x, y, variant="c")[0]
        assert list(correlations(x, y).values()) == pytest.approx(theirs, abs=1e-12)


@given(COLUMNS, st.integers(0, 999))
def test_a_weight_is_a_number_of_equal_rows(columns, seed):
    x, y = map(np.array, columns)
    weights = np.random.default_rng(seed).integers(0, 4, (5, len(x)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_correlation, "MAX_WEIGHTS", 2 * len(x))  # some draws at a time
        found = RankedPairs(x, y).correlations(weights.astype(float))
    for row, weight in zip(found, weights, strict=True):
        repeated = np.repeat(x, weight).tolist(), np.repeat(y, weight).tolist()
        assert row.tolist() == pytest.approx(by_definition(*repeated), abs=1e-12)
    assert RankedPairs(x, y).spearman(weights.astype(float)) == pytest.approx(found[:, 0])


def test_weights_of_groups_are_those_of_their_rows():
    random = np.random.default_rng(0)
    pairs, group_of = RankedPairs(random.normal(size=30), random.integers(0, 5, 30)), random.integers(0, 4, 30)
    weights = random.integers(0, 3, (7, 4)).astype(float)
    assert np.array_equal(pairs.correlations(weights, group_of), pairs.correlations(weights[:, group_of]))


def test_many_rows_equal_scipy_and_infinities_have_an_order():
    random = np.random.default_rng(0)
    x, y = random.normal(size=3000), random.integers(0, 700, 3000)
    x[:5], y[5:9] = -np.inf, 900
    theirs = stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0], stats.kendalltau(x, y, variant="c")[0]
    assert list(correlations(x, y).values()) == pytest.approx(theirs, abs=1e-12)


def test_opposite_orders_and_a_column_that_orders_nothing():
    assert correlations([1, 2, 3], [9, 4, -2]) == pytest.approx(dict.fromkeys(MEASURES, -1))
    assert correlations([1, 2, 3], [4, 4, 4]) == dict.fromkeys(MEASURES, 0)
    assert correlations([2.0, 2.0], [1, 5]) == dict.fromkeys(MEASURES, 0)
