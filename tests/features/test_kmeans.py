"""K-means against scikit-learn's from the same start, and what it promises of any vectors."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.cluster import KMeans, kmeans_plusplus

from diptych.errors import DataError
from diptych.features import kmeans as module
from diptych.features.kmeans import kmeans


def clouds(count, around, size=3, seed=0, spread=0.5):
    """Vectors around a few places."""
    generator = np.random.default_rng(seed)
    places = 4 * generator.standard_normal((around, size))
    vectors = places[generator.integers(around, size=count)] + spread * generator.standard_normal((count, size))
    return vectors.astype(np.float32)


def means(vectors, labels):
    return np.stack([vectors[labels == label].mean(0, dtype=np.float64) for label in range(labels.max() + 1)])


def inertia(vectors, labels):
    return float(np.square(vectors - means(vectors, labels)[labels]).sum())


@pytest.mark.parametrize(("clusters", "around", "spread"), [(4, 4, 0.1), (7, 3, 2.0), (40, 10, 1.0)])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("offset", [0, 100])
def test_scikit_learn_ends_with_the_same_clusters(clusters, around, spread, seed, offset):
    vectors = clouds(400, around, seed=seed, spread=spread) + np.float32(offset)
    start = means(vectors, kmeans(vectors, clusters, seed, iterations=0))
    oracle = KMeans(clusters, init=start.astype(np.float32), n_init=1, max_iter=300, tol=0).fit(vectors)
    labels = kmeans(vectors, clusters, seed, iterations=300)
    assert np.array_equal(labels, oracle.labels_)
    assert inertia(vectors, labels) == pytest.approx(oracle.inertia_, rel=1e-4)


def test_the_initial_centres_are_as_good_as_one_centre_per_round():
    vectors = clouds(1200, 100, size=8)

    def plain(seed):
        centres, _ = kmeans_plusplus(vectors, 100, n_local_trials=1, random_state=seed)
        return KMeans(100, init=centres, n_init=1).fit(vectors).inertia_

    def drawn(seed):
        return KMeans(100, init="random", n_init=1, random_state=seed).fit(vectors).inertia_

    ours = sum(inertia(vectors, kmeans(vectors, 100, seed)) for seed in range(10))
    assert ours < 1.2 * sum(plain(seed) for seed in range(10))
    assert ours < 0.7 * sum(drawn(seed) for seed in range(10))


vectors_and_clusters = st.tuples(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, 1000.0]) | st.floats(-1000, 1000, width=32),
    ),
    st.integers(1, 6),
    st.integers(0, 3),
)


@given(vectors_and_clusters)
def test_any_vectors_are_clustered(drawn):
    vectors, clusters, seed = drawn
    distinct = len({tuple(row) for row in vectors.tolist()})
    if clusters > distinct:
        with pytest.raises(
            DataError, match=f"{clusters} clusters of {distinct} distinct vectors; choose 1 to {distinct}$"
        ):
            kmeans(vectors, clusters, seed)
        return
    labels = kmeans(vectors, clusters, seed)
    assert labels.dtype == np.int64
    assert set(labels.tolist()) == set(range(clusters))
    assert np.array_equal(labels, kmeans(vectors, clusters, seed))
    by_vector = {}
    for row, label in zip(vectors.tolist(), labels.tolist(), strict=True):
        assert by_vector.setdefault(tuple(row), label) == label


@settings(max_examples=30)
@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 100), st.sampled_from([0.0, 0.3, 3.0]))
def test_inertia_never_rises(count, around, seed, spread):
    vectors = clouds(count, around, seed=seed, spread=spread)
    clusters = min(len(np.unique(vectors, axis=0)), around + 1)
    found = [inertia(vectors, kmeans(vectors, clusters, seed, iterations=steps)) for steps in range(8)]
    scale = 1e-5 * np.square(vectors).sum()
    assert all(after <= before + scale for before, after in pairwise(found))


def test_at_the_end_each_vector_is_nearest_to_the_mean_of_its_cluster():
    vectors = clouds(300, 9, spread=2.0)
    labels = kmeans(vectors, 9, seed=0, iterations=300)
    distances = np.square(vectors[:, None] - means(vectors, labels)).sum(2)
    assert np.array_equal(distances.argmin(1), labels)


def test_repeated_vectors_count_as_often_as_they_occur():
    distinct = clouds(60, 4, spread=2.0)
    vectors = np.repeat(distinct, np.random.default_rng(0).integers(1, 30, len(distinct)), axis=0)
    start = means(vectors, kmeans(vectors, 6, 0, iterations=0)).astype(np.float32)
    oracle = KMeans(6, n_init=1, init=start, tol=0).fit(vectors)
    assert np.array_equal(kmeans(vectors, 6, seed=0), oracle.labels_)


def test_an_empty_cluster_gets_the_farthest_vector():
    vectors = np.float32([[0], [1], [2], [50], [90]])
    points = module._Points(vectors)

    def labels(*centres):
        return points.labels(np.float32(centres)[:, None] - vectors.mean()).tolist()

    assert labels(1, 500, 500) == [0, 0, 0, 2, 1]
    # The lone vector of a cluster stays with it, however far away that is.
    assert labels(1, 95, 900) == [0, 0, 0, 2, 1]
    assert labels(0, 1, 2, 150, 900) == [0, 1, 2, 4, 3]


@pytest.mark.parametrize(
    "vectors",
    [
        np.float32([[0], [1e-30], [2e-30], [-5e-30]]),  # their squares are 0
        np.float32([[1000], [-1000]] * 10) * clouds(1, 1, size=64) + 1e-3 * np.arange(20, dtype=np.float32)[:, None],
        np.float32([[1000], [np.nextafter(np.float32(1000), np.float32(2000))]]),
    ],
    ids=["tiny", "close", "next"],
)
def test_vectors_that_are_equal_in_single_precision_are_drawn_once(vectors):
    for seed in range(10):
        start = module._Points(vectors).initial_centres(len(vectors), np.random.default_rng(seed))
        assert len(np.unique(start, axis=0)) == len(vectors)
        assert sorted(kmeans(vectors, len(vectors), seed).tolist()) == list(range(len(vectors)))


@pytest.mark.parametrize("block", [1, 7, 64])
def test_the_block_size_changes_nothing(monkeypatch, block):
    vectors = np.concatenate([clouds(60, 5), clouds(10, 5)])
    expected = kmeans(vectors, 5, seed=3)
    monkeypatch.setattr(module, "_BLOCK", block)
    assert np.array_equal(kmeans(vectors, 5, seed=3), expected)


def test_the_number_of_rounds_of_the_initialisation(monkeypatch):
    drawn = []
    nearest = module._Points._nearest
    monkeypatch.setattr(module._Points, "_nearest", lambda self, new: drawn.append(len(new)) or nearest(self, new))
    kmeans(clouds(500, 9), 200, seed=0, iterations=0)
    assert drawn[:64] == [1] * 64
    assert drawn[64:-1] == [2] * 32 + [3] * 22 + [4] * 1 + [2]  # 1 + what is there // 64, and what is left to draw
    assert drawn[-1] == 200  # the labels


def test_progress_ends_with_the_total():
    calls = []
    kmeans(clouds(300, 4, spread=3.0), 6, seed=0, iterations=100, progress=lambda *call: calls.append(call))
    assert calls[0] == (1, 101)
    assert calls[-1] == (101, 101)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert 2 < len(calls) < 100  # it stopped when nothing changed


@pytest.mark.parametrize(
    ("vectors", "clusters", "words"),
    [
        (np.ones((4, 2), np.float32), 2, "K-means: 2 clusters of 1 distinct vectors; choose 1 to 1"),
        (clouds(4, 2), 0, "K-means: 0 clusters of 4 distinct vectors; choose 1 to 4"),
        (clouds(4, 2), -3, "K-means: -3 clusters of 4 distinct vectors; choose 1 to 4"),
        (
            np.empty((0, 2), np.float32),
            1,
            "K-means: 1 clusters of 0 distinct vectors; there are no vectors",
        ),
        (np.float32([[1], [2], [np.nan]]), 2, "K-means: vector 2 has a number that is not finite; compute it again"),
        (np.float32([[1], [-np.inf]]), 2, "K-means: vector 1 has a number that is not finite; compute it again"),
        (np.float32([[1], [1], [1e30]]), 2, "K-means: vector 0: its numbers are too large to compare; divide all by a"),
    ],
    ids=["equal", "none", "negative", "no vectors", "nan", "infinite", "too large"],
)
def test_impossible_requests_are_refused(vectors, clusters, words):
    with pytest.raises(DataError, match=re.escape(words)):
        kmeans(vectors, clusters, seed=0)
