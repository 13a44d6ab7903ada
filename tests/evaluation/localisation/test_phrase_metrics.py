from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.localisation.phrase_metrics import (
    PHRASE_SELECTION_METRICS,
    GroundingResult,
    correct_regions,
    paired_phrase_difference,
    phrase_ranks,
)
from diptych.evaluation.metrics import significance


def grounding(ranks, images=None, kinds=None, **more) -> GroundingResult:
    rows = np.arange(len(ranks))
    kinds = [()] * len(ranks) if kinds is None else kinds
    images = rows if images is None else np.array(images)
    return GroundingResult(np.array(ranks, float), images, kinds, rows, np.zeros((len(rows), 4), np.float32), **more)


def shared_by_hand(one, other) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return both / (sum(areas) - both)


def slow_rank(scores, right) -> float:
    """Sort all candidates, incorrect ones first among equals, and walk down to the first correct one."""
    ordered = sorted(zip(scores, right, strict=True), key=lambda each: (-each[0], each[1]))
    for place, (_, is_it) in enumerate(ordered, 1):
        if is_it:
            return place
    return math.inf


scored = st.lists(
    st.tuples(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 0.5 + 2**-20, 2.0]), st.booleans()), max_size=12
)


@given(scored)
def test_ranks_equal_a_walk_down_the_list(candidates):
    scores = np.array([[score] for score, _ in candidates]).reshape(-1, 1)
    right = np.array([[is_it] for _, is_it in candidates], bool).reshape(-1, 1)
    expected = slow_rank([score for score, _ in candidates], [is_it for _, is_it in candidates])
    assert phrase_ranks(scores, right).tolist() == [expected]


def test_each_phrase_has_its_own_column():
    random = np.random.default_rng(0)
    scores, right = random.integers(0, 5, (30, 40)).astype(np.float32), random.random((30, 40)) < 0.05
    expected = [slow_rank(scores[:, column], right[:, column]) for column in range(40)]
    assert phrase_ranks(scores, right).tolist() == expected
    assert math.inf in expected


def test_ties_are_pessimistic_and_other_correct_regions_do_not_count():
    right = np.array([[True], [False], [True], [False], [True]])
    assert phrase_ranks(np.full((5, 1), 7.0), right).tolist() == [3]
    assert phrase_ranks(np.array([[3.0], [2.0], [3.0], [2.0], [1.0]]), right).tolist() == [1]


def test_a_score_that_is_not_a_number_is_refused():
    with pytest.raises(ScoreError, match="not a number"):
        phrase_ranks(np.array([[1.0], [np.nan]]), np.array([[True], [False]]))


edges = st.lists(st.integers(0, 12), min_size=2, max_size=2, unique=True).map(sorted)
corners = st.tuples(edges, edges).map(lambda ends: (ends[0][0], ends[1][0], ends[0][1], ends[1][1]))


@given(st.lists(corners, min_size=1, max_size=6), corners, st.sampled_from([7, 12, 100]))
def test_half_of_the_union_is_correct_whatever_the_rounding(candidates, box, width):
    exact = [shared_by_hand(candidate, box) >= 0.5 for candidate in candidates]  # of whole numbers
    relative = np.array([*candidates, box], np.float32) / np.float32(width)
    assert correct_regions(relative[:-1], relative[-1:])[:, 0].tolist() == exact


def test_exactly_half_is_correct_in_single_precision():
    thirds = np.array([[0, 0, 2, 1], [0, 0, 1, 1], [1, 0, 2, 1]], np.float32) / 3
    thirds[:, [0, 2]] += np.float32(0.1)
    assert correct_regions(thirds[1:], thirds[:1]).all()


@pytest.mark.parametrize("tenths", [3, 5, 7])
def test_exactly_the_required_overlap_is_correct_at_every_place(tenths):
    for place in range(0, 480, 7):
        box, region = (np.array([[place, 0, place + size, 4]], np.float32) / 500 for size in (10, tenths))
        assert correct_regions(region, box, tenths / 10).all()
        assert not correct_regions(region, box, tenths / 10 + 0.01).any()


def test_the_required_overlap_can_be_chosen():
    box, third = np.array([[0, 0, 1, 1]], np.float32), np.array([[0, 0, 1, 1 / 3]], np.float32)
    assert not correct_regions(third, box).any()
    assert correct_regions(third, box, 1 / 3).all()


def test_metrics_are_percentages_of_all_mentions():
    found = grounding([1, 2, 5, 6, 10, 11, math.inf, math.inf])
    expected = {"phrase_r1": 12.5, "phrase_r5": 37.5, "phrase_r10": 62.5, "phrase_sum": 112.5, "ceiling": 75.0}
    assert found.metrics == expected
    assert set(PHRASE_SELECTION_METRICS) == expected.keys() - {"ceiling"}
    assert found.is_found.tolist() == [True] + [False] * 7


def test_a_mention_of_several_kinds_counts_in_each():
    kinds = [("people",), ("people", "other"), ("other", "other"), (), ("clothing",)]
    found = grounding([1, 7, math.inf, 1, 3], kinds=kinds)
    assert {kind: each["count"] for kind, each in found.by_kind.items()} == {"other": 2, "people": 2, "clothing": 1}
    assert list(found.by_kind) == ["other", "people", "clothing"]
    assert found.by_kind["people"]["phrase_r1"] == 50
    assert found.by_kind["other"]["phrase_sum"] == 50
    assert found.by_kind["other"]["ceiling"] == 50
    assert found.by_kind["clothing"]["phrase_r5"] == 100


@pytest.mark.parametrize("at_once", [10, 1 << 22])
def test_intervals_equal_a_slow_loop_over_photos(at_once, monkeypatch):
    monkeypatch.setattr(significance, "MAX_WEIGHTS", at_once)
    monkeypatch.setattr("diptych.evaluation.localisation.phrase_metrics.DRAWS", 60)
    random = np.random.default_rng(1)
    images = random.choice([4, 9, 17, 30, 31], 40)
    ranks = np.where(random.random(40) < 0.2, np.inf, random.integers(1, 14, 40))
    photos, dice = sorted(set(images.tolist())), np.random.default_rng(0)
    columns = []
    for _ in range(60):
        drawn = [photos[number] for number in dice.integers(len(photos), size=len(photos))]
        own = np.concatenate([ranks[images == photo] for photo in drawn])
        recalls = [100 * np.mean(own <= cutoff) for cutoff in (1, 5, 10)]
        columns.append([*recalls, sum(recalls), 100 * np.mean(own < np.inf)])
    bounds = grounding(ranks, images).intervals.bounds
    assert list(bounds) == ["phrase_r1", "phrase_r5", "phrase_r10", "phrase_sum", "ceiling"]
    expected = [np.quantile(column, [0.025, 0.975]) for column in np.array(columns).T]
    assert list(bounds.values()) == [pytest.approx(tuple(bound)) for bound in expected]


def test_json_has_sizes_metrics_and_kinds():
    kinds = [("people",), (), ("vehicles",)]
    found = grounding([1, 30, math.inf], [0, 0, 2], kinds, skipped={"a.jpg": "a.jpg: truncated"}, empty=["b.jpg"])
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (told["mentions"], told["images"], told["overlap"]) == (3, 2, 0.5)
    assert told["metrics"] == found.metrics
    assert told["kinds"]["vehicles"] == {"count": 1, **dict.fromkeys(found.metrics, 0.0)}
    assert told["skipped"] == {"a.jpg": "a.jpg: truncated"}
    assert told["empty"] == ["b.jpg"]


def test_nothing_to_measure_is_an_error():
    with pytest.raises(ScoreError, match=r"no phrase could be measured; first reason: a\.jpg: truncated"):
        grounding([], skipped={"a.jpg": "a.jpg: truncated"})


def some_grounding(seed: int, mentions: int = 40) -> GroundingResult:
    """Mentions of a few photos, the same photos for every seed."""
    random = np.random.default_rng(seed)
    ranks = np.where(random.random(mentions) < 0.2, np.inf, random.integers(1, 14, mentions))
    images = np.random.default_rng(9).choice([4, 9, 17, 30, 31], mentions)
    return GroundingResult(ranks, images, [()] * mentions, np.arange(mentions), np.zeros((mentions, 4), np.float32))


def test_a_paired_difference_equals_a_slow_loop_that_draws_photos_for_both(monkeypatch):
    monkeypatch.setattr("diptych.evaluation.localisation.phrase_metrics.DRAWS", 60)
    first, second = some_grounding(1), some_grounding(2)
    photos, dice = sorted(set(first.images.tolist())), np.random.default_rng(0)
    columns = []
    for _ in range(60):
        drawn = [photos[number] for number in dice.integers(len(photos), size=len(photos))]
        sides = [np.concatenate([each.ranks[each.images == photo] for photo in drawn]) for each in (first, second)]
        recalls = [100 * (np.mean(sides[1] <= cutoff) - np.mean(sides[0] <= cutoff)) for cutoff in (1, 5, 10)]
        ceiling = 100 * (np.mean(sides[1] < np.inf) - np.mean(sides[0] < np.inf))
        columns.append([*recalls, sum(recalls), ceiling])
    found = paired_phrase_difference(first, second)
    assert list(found.differences) == ["phrase_r1", "phrase_r5", "phrase_r10", "phrase_sum", "ceiling"]
    for column, (name, each) in zip(np.array(columns).T, found.differences.items(), strict=True):
        assert each.value == pytest.approx(second.metrics[name] - first.metrics[name])
        assert (each.low, each.high) == pytest.approx(tuple(np.quantile(column, [0.025, 0.975])))


def test_a_run_does_not_differ_from_itself_and_other_phrases_are_refused():
    one = some_grounding(1)
    assert not any(
        each.is_significant or each.value for each in paired_phrase_difference(one, one).differences.values()
    )
    with pytest.raises(ScoreError, match="the same phrases in the same order"):
        paired_phrase_difference(one, one.subset(np.arange(39)))


def test_a_subset_keeps_the_ranks_of_its_mentions():
    one = replace(some_grounding(1), rows=np.arange(40) * 2)  # every other mention was measured
    part = one.subset(np.array([0, 5, 6, 78, 200]))
    assert part.rows.tolist() == [0, 6, 78]
    assert part.ranks.tolist() == one.ranks[[0, 3, 39]].tolist()
    assert part.images.tolist() == one.images[[0, 3, 39]].tolist()
    assert (len(part.kinds), part.boxes.shape) == (3, (3, 4))
