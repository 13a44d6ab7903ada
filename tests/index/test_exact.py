import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.index import exact
from diptych.index.exact import Pool


def best_by_sorting(pool, query, k, cosine=False, rows=None):
    rows = range(len(pool.ids)) if rows is None else rows
    scores = pool.vectors.astype(np.float64) @ query.astype(np.float64)
    if cosine:
        scores /= pool.norms
    return sorted(rows, key=lambda row: (-scores[row], row))[:k]


integers = st.integers(-2, 2).map(float)


@given(
    entries=st.lists(st.lists(integers, min_size=3, max_size=3), min_size=1, max_size=40),
    queries=st.lists(st.lists(integers, min_size=3, max_size=3), min_size=1, max_size=4),
    k=st.integers(1, 50),
    every=st.sampled_from([1, 2, 9]),
    cosine=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_exact_search_equals_sorting_everything(entries, queries, k, every, cosine):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK", 7)
        patch.setattr(exact, "SAMPLE", 5)
        ids = 3 * np.arange(len(entries)) + 1
        pool = Pool(ids, np.array(entries, np.float32))
        queries = np.array(queries, np.float32)
        restricted = pool.restricted(ids[::every])
        for query, found in zip(queries, restricted.top(queries, k, cosine), strict=True):
            expected = best_by_sorting(pool, query, k, cosine, range(0, len(entries), every))
            if cosine:  # quotients are rounded, so that equal cosines may differ in the last bit
                scores = restricted.score(query, found.rows, True)
                assert np.all(np.diff(scores) <= 0)
                assert sorted(scores) == pytest.approx(sorted(pool.score(query, np.array(expected), True)), abs=1e-6)
            else:
                assert restricted.ids[found.rows].tolist() == ids[expected].tolist()
                assert found.scores.tolist() == [float(pool.vectors[row] @ query) for row in expected]
            assert restricted.top(query[None], k, cosine)[0].rows.tolist() == found.rows.tolist()


def test_equal_entries_have_equal_scores_in_any_position():
    random = np.random.default_rng(0)
    row = random.standard_normal((1, 67)).astype(np.float32)
    pool = Pool(np.arange(3001), np.repeat(row, 3001, 0))
    for found in pool.top(random.standard_normal((3, 67)).astype(np.float32), 9):
        assert found.rows.tolist() == list(range(9))
        assert len(set(found.scores.tolist())) == 1
    # A matrix product may give equal entries scores that differ in the last bit: all of them are scored again.
    assert exact._promising(np.arange(4), np.array([1, 0.5, 1 + 1e-7, 1], np.float32), 1, 1e-5).tolist() == [0, 2, 3]


@pytest.mark.parametrize("longest", [1.0, 1e5])
def test_one_long_vector_does_not_hide_the_best(longest):
    random = np.random.default_rng(3)
    vectors = random.standard_normal((3000, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[5] *= longest
    queries = random.standard_normal((4, 8)).astype(np.float32)
    pool = Pool(np.arange(1, 3001), vectors)
    for query, found in zip(queries, pool.top(queries, 10), strict=True):
        assert found.rows.tolist() == best_by_sorting(pool, query, 10)


def test_scores_that_differ_by_a_rounding_error_are_ordered():
    steps = np.float32(0.5) + np.arange(40, dtype=np.float32) * np.float32(2e-6)
    for rows in (np.random.default_rng(seed).permutation(40) for seed in range(20)):
        pool = Pool(np.arange(40), steps[rows][:, None])
        found = pool.top(np.ones((1, 1), np.float32), 7)[0]
        assert found.rows.tolist() == np.argsort(-steps[rows])[:7].tolist()


def test_a_narrow_filter_copies_its_vectors_and_a_wide_one_does_not():
    pool = Pool(np.arange(100), np.eye(100, 4, dtype=np.float32))
    narrow, wide = pool.restricted(np.arange(5)), pool.restricted(np.arange(50))
    assert narrow.allowed is None
    assert len(narrow.vectors) == len(narrow) == 5
    assert wide.vectors is pool.vectors
    assert (len(wide), wide.allowed.tolist()) == (50, list(range(50)))
    assert pool.restricted(np.arange(100)) is pool
