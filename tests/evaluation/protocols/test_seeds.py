"""Mean, deviation and median run, compared with numpy and with the printed figures of ConVSE's Table I."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.evaluation.metrics.recall import SELECTION_METRICS
from diptych.evaluation.protocols.seeds import SeedStatistics

# Table I, Flickr30K: five runs a method, and the line "mean (std)" that is printed below them.
CONVSE = [
    (54.2, 79.6, 88.1, 39.6, 70.3, 80.4, 412.2),
    (54.9, 79.3, 88.6, 39.4, 70.1, 80.4, 412.7),
    (55.6, 81.0, 88.8, 39.0, 69.3, 79.4, 413.1),
    (56.4, 80.0, 87.9, 39.8, 70.3, 80.2, 414.6),
    (56.1, 80.4, 88.2, 39.4, 70.7, 80.1, 414.9),
]
CONVSE_MEANS = (55.4, 80.1, 88.3, 39.4, 70.1, 80.1, 413.5)
CONVSE_STDS = (0.90, 0.67, 0.37, 0.30, 0.52, 0.41, 1.19)
CONVSEPP = [
    (58.2, 82.3, 89.8, 41.4, 70.5, 79.5, 421.7),
    (57.8, 83.6, 89.6, 41.0, 70.5, 79.8, 422.3),
    (57.8, 84.3, 88.9, 41.0, 71.1, 80.0, 423.1),
    (57.9, 83.5, 90.6, 41.3, 70.6, 79.4, 423.3),
    (58.9, 83.3, 89.8, 41.8, 71.1, 79.7, 424.6),
]
CONVSEPP_MEANS = (58.1, 83.4, 89.7, 41.3, 70.8, 79.7, 423.0)
CONVSEPP_STDS = (0.47, 0.72, 0.61, 0.33, 0.31, 0.24, 1.10)


def several(rows):
    return SeedStatistics(
        {f"seed-{seed}": dict(zip(SELECTION_METRICS, row, strict=True)) for seed, row in enumerate(rows)}
    )


@pytest.mark.parametrize(
    ("rows", "means", "stds"),
    [(CONVSE, CONVSE_MEANS, CONVSE_STDS), (CONVSEPP, CONVSEPP_MEANS, CONVSEPP_STDS)],
    ids=["convse", "convsepp"],
)
def test_the_papers_table_one(rows, means, stds):
    runs = several(rows)
    # the paper's means and deviations are of unrounded figures
    assert list(runs.mean.values()) == pytest.approx(means, abs=0.06)
    assert list(runs.std.values()) == pytest.approx(stds, abs=0.051)
    assert runs.median_run == "seed-2"  # Table III reports run 3
    # dividing by the number of runs does not give what is printed
    assert np.abs(np.std(rows, axis=0) - stds).sum() > 3 * np.abs(list(runs.std.values()) - np.array(stds)).sum()


@given(st.lists(st.lists(st.floats(0, 100), min_size=7, max_size=7), min_size=2, max_size=8))
def test_it_agrees_with_numpy(rows):
    runs = several(rows)
    assert list(runs.mean.values()) == pytest.approx(np.mean(rows, axis=0))
    assert list(runs.std.values()) == pytest.approx(np.std(rows, axis=0, ddof=1), abs=1e-9)
    sums = np.array(rows)[:, -1]
    middle = runs.runs[runs.median_run]["rsum"]
    assert middle == np.percentile(sums, 50, method="lower")


def test_the_lower_of_two_is_the_median_and_a_single_run_has_no_deviation():
    assert several([CONVSE[4], CONVSE[0]]).median_run == "seed-1"
    one = several(CONVSE[:1])
    assert one.std is None
    assert one.mean == one.runs["seed-0"]
    assert one.to_json() == {"runs": one.runs, "mean": one.mean, "std": None, "median_run": "seed-0"}


def test_mean_and_deviation_are_of_recalls_only():
    rows = {name: {**dict.fromkeys(SELECTION_METRICS, 1.0), "i2t_median": 3.0} for name in ("a", "b")}
    assert list(SeedStatistics(rows).mean) == list(SELECTION_METRICS)
    assert SeedStatistics(rows).to_json()["runs"]["a"]["i2t_median"] == 3.0


def test_runs_are_ordered_by_the_sum_that_they_have():
    assert several(CONVSE).sum_metric == "rsum"
    phrases = SeedStatistics(
        {
            "a": {"phrase_r1": 3.0, "phrase_sum": 20.0, "ceiling": 1.0},
            "b": {"phrase_r1": 1.0, "phrase_sum": 30.0, "ceiling": 3.0},
            "c": {"phrase_r1": 2.0, "phrase_sum": 10.0, "ceiling": 2.0},
        }
    )
    assert phrases.sum_metric == "phrase_sum"
    assert phrases.median_run == "a"
    assert phrases.mean == {"phrase_r1": 2.0, "phrase_sum": 20.0}
