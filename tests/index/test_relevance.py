import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.index.relevance import FEWEST, Background, estimate_background, thresholds

ONE = np.ones(1, np.float32)


def threshold(scores, known, entries=None):
    scores = np.asarray(scores, np.float32)[None]
    return float(thresholds(scores, ONE, entries or scores.shape[1], known)[0])


@pytest.fixture
def folder():
    """Unrelated entries of length one."""
    vectors = np.random.default_rng(0).standard_normal((1500, 40)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(
    shift=st.floats(-5, 5),
    scale=st.floats(0.1, 10),
    spread=st.floats(0.1, 2),
    scores=st.lists(st.floats(-1, 1, width=32), min_size=FEWEST, max_size=60),
)
@settings(max_examples=25, deadline=None)
def test_a_threshold_moves_with_all_scores(shift, scale, spread, scores):
    plain = threshold(scores, Background(spread, 0.0))
    moved = threshold(np.array(scores) * scale + shift, Background(scale * spread, 0.0))
    assert moved == pytest.approx(plain * scale + shift, abs=1e-4)
    higher = np.sort(scores)
    higher[-1] += 100  # what a query finds does not raise its threshold
    assert threshold(higher, Background(spread, 0.0)) == pytest.approx(plain, abs=1e-5)


def test_the_threshold_follows_the_normal_tail_and_rises_with_the_entries():
    known, scores = Background(2.0, 0.0), np.full(50, 3.0)
    heights = [threshold(scores, known, entries) for entries in (50, 1000, 100_000)]
    assert heights == pytest.approx([3 + 2 * 2.8782, 3 + 2 * 3.7190, 3 + 2 * 4.7534], abs=1e-3)


def test_the_length_of_a_query_changes_nothing():
    scores = np.random.default_rng(0).standard_normal((1, 30)).astype(np.float32)
    known = Background(0.3, 0.0)
    assert thresholds(5 * scores, 5 * ONE, 30, known) == pytest.approx(5 * thresholds(scores, ONE, 30, known), rel=1e-5)


def test_the_background_is_the_spread_of_the_entries(folder):
    known = estimate_background(folder)
    assert known.spread == pytest.approx(1 / np.sqrt(40), rel=0.05)
    assert known.level == pytest.approx(0, abs=0.01)
    assert estimate_background(3 * folder).spread == pytest.approx(3 * known.spread, rel=1e-4)


@pytest.mark.parametrize("share", [0.001, 0.02, 0.25])
def test_a_few_or_many_matches_stand_out_and_their_absence_does_not(folder, share):
    random = np.random.default_rng(1)
    query = random.standard_normal(40).astype(np.float32)
    query /= np.linalg.norm(query)
    unrelated = folder - np.outer((folder @ query).clip(0.3) - 0.3, query)  # nothing fits more than a little
    matching = unrelated.copy()
    count = max(1, round(share * len(folder)))
    matching[:count] += 0.9 * query
    for entries, found in ((matching, True), (unrelated, False)):
        scores = (entries @ query)[None]
        height = thresholds(scores, ONE, len(entries), estimate_background(entries[random.permutation(len(entries))]))[
            0
        ]
        assert (scores.max() >= height) == found
        if found:
            assert (scores[0, :count] >= height).mean() > 0.8
            assert not (scores[0, count:] >= height).any()


def test_a_folder_of_one_thing_matches_the_query_for_it_as_a_whole(folder):
    thing, other = np.eye(40, dtype=np.float32)[:2]
    alike = 0.6 * folder + 0.8 * thing
    alike[:, 1] = alike[:, 1].clip(-0.2, 0.2)
    known = estimate_background(alike)
    scores = alike @ np.stack([thing, other, -thing]).T  # (entries, questions)
    heights = thresholds(scores.T.copy(), np.ones(3, np.float32), len(alike), known)
    assert (scores.max(0) >= heights).tolist() == [True, False, False]
    assert (scores[:, 0] >= heights[0]).mean() > 0.9


def test_few_or_equal_entries_have_no_background(folder):
    assert estimate_background(folder[: FEWEST - 1]) is None
    assert estimate_background(np.repeat(folder[:1], 50, 0)) is None
    assert threshold(np.zeros(50), None) == -np.inf
    assert threshold(np.zeros(FEWEST), Background(1.0, 0.0)) > 0
