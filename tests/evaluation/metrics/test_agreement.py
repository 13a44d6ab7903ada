from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.evaluation.metrics.agreement import correlations_within, sampled_spearman
from diptych.evaluation.metrics.rank_correlation import MEASURES, correlations


@given(st.integers(0, 999))
def test_each_query_is_measured_by_itself_if_it_has_two_grades(seed):
    random = np.random.default_rng(seed)
    scores, grades = random.integers(0, 5, 25).astype(float), random.integers(1, 4, 25).astype(float)
    queries = random.integers(-3, 6, 25)
    used, found = correlations_within(scores, grades, queries)
    expected = {
        query: list(correlations(scores[queries == query], grades[queries == query]).values())
        for query in sorted(set(queries.tolist()))
        if len(set(grades[queries == query])) > 1
    }
    assert used.tolist() == list(expected)
    assert found.tolist() == list(expected.values())


def test_without_a_query_that_has_two_grades_there_is_nothing():
    used, found = correlations_within(np.arange(3.0), np.array([1.0, 1.0, 2.0]), np.array([4, 4, 5]))
    assert (used.shape, found.shape) == ((0,), (0, len(MEASURES)))


def test_a_sample_has_one_pair_of_each_of_half_of_the_queries():
    queries = np.array([7, 3, 7, 7, 5, 3, 9, 7, 1])

    seen = []  # scores are the rows themselves, so that a sample tells which rows it has
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "diptych.evaluation.metrics.agreement.RankedPairs",
            lambda scores, grades: seen.append(scores.astype(int)) or Zero(),
        )
        sampled_spearman(np.arange(9.0), np.arange(9.0), queries, 400, np.random.default_rng(0))
    assert len(seen) == 400
    assert {len(rows) for rows in seen} == {2}  # of five queries
    assert all(len(set(queries[rows])) == 2 for rows in seen)
    counts = np.bincount(np.concatenate(seen), minlength=9)
    # each query is in two fifths of the samples, 160 of 400, with any of its pairs
    assert np.bincount(queries[np.concatenate(seen)], minlength=10)[[1, 3, 5, 7, 9]] == pytest.approx(160, abs=45)
    assert counts[[0, 2, 3, 7]] == pytest.approx(40, abs=25)


class Zero:
    def spearman(self, weights):
        return np.zeros(len(weights))


def test_samples_are_correlated_and_fewer_than_two_pairs_are_0():
    random = np.random.default_rng(0)
    scores, queries = random.normal(size=40), np.repeat(np.arange(20), 2)
    assert sampled_spearman(scores, 3 * scores + 1, queries, 5, random).tolist() == pytest.approx([1] * 5)
    found = sampled_spearman(scores, random.normal(size=40), queries, 200, random)
    assert -0.5 < found.mean() < 0.5
    assert found.std() > 0.1
    assert sampled_spearman(scores[:6], scores[:6], queries[:6], 3, random).tolist() == [0, 0, 0]
