from __future__ import annotations

import numpy as np
import torch
from rich.console import Console

from diptych.evaluation.metrics.paired_difference import paired_difference
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.report.baselines import BaselineComparison, MeasuredBaseline
from diptych.report.tables.baselines import baseline_table
from diptych.training.recipe import Row

IMAGES = 40


def result(noise):
    scores = torch.eye(IMAGES) + noise * torch.randn(IMAGES, IMAGES, generator=torch.Generator().manual_seed(0))
    return evaluate_score(matrix_score(scores), np.arange(IMAGES), np.arange(IMAGES))


def printed(comparison, width=80):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(baseline_table(comparison, "val"))
    return captured.get()


def row_of(text, name):
    rows = (line.strip() for line in text.splitlines())
    return next(row for row in rows if row.startswith(f"{name} ") and "against" not in row).removeprefix(name).split()


def against(mine, baseline, *roles, name="starter"):
    return MeasuredBaseline(name, roles, baseline, paired_difference(baseline.folds, mine.folds))


def test_the_table_has_both_models_and_their_difference():
    mine, starter = result(0.1), result(2.0)
    baseline = against(mine, starter, "starter")
    text = printed(BaselineComparison("mine", mine, (baseline,), {}))
    assert "mine against the starter on val: 40 images, 40 texts" in text
    assert row_of(text, "mine")[-1] == f"{mine.metrics.rsum:.1f}"
    assert row_of(text, "starter")[-1] == f"{starter.metrics.rsum:.1f}"
    assert row_of(text, "difference")[-1] == f"{mine.metrics.rsum - starter.metrics.rsum:+.1f}*"
    rsum = baseline.difference.differences["rsum"]
    assert f"{rsum.low:+.1f} to {rsum.high:+.1f}" in text
    assert "* the 95% interval of the difference excludes 0" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_a_run_started_from_comes_first():
    mine, start, starter = result(0.1), result(1.0), result(2.0)
    baselines = against(mine, start, "start", name="b[1]"), against(mine, starter, "starter")
    text = printed(BaselineComparison("mine", mine, baselines, {}))
    assert "mine against its start (b[1]) and the starter on val: " in text
    assert row_of(text, "start")[-1] == f"{start.metrics.rsum:.1f}"
    rows = [line.split()[-1] for line in text.splitlines() if line.strip().startswith("difference")]
    assert rows == [f"{mine.metrics.rsum - other.metrics.rsum:+.1f}*" for other in (start, starter)]
    both = printed(BaselineComparison("mine", mine, (against(mine, starter, "start", "starter"),), {}))
    assert "mine against the starter on val: " in both
    assert row_of(both, "starter")[-1] == f"{starter.metrics.rsum:.1f}"


def test_a_difference_that_may_be_chance_has_no_star():
    mine = result(1.0)
    text = printed(BaselineComparison("mine", mine, (against(mine, mine, "starter"),), {}))
    assert row_of(text, "difference") == ["+0.0"] * 7


def test_published_rows_have_dashes_for_what_was_not_given():
    rows = {
        "somebody [2018], Table 1": Row(number="1", data="x", i2t=(10.0, 20.0, 30.0), t2i=(1, 2, 3, 9.0)),
        "somebody else": Row(number="2", data="x", i2t=(10.0, "-", 30.0)),
    }
    text = printed(BaselineComparison("mine", result(1.0), (), rows), width=120)
    assert "mine against the paper on val: " in text
    assert row_of(text, "somebody [2018], Table 1") == ["10.0", "20.0", "30.0", "1.0", "2.0", "3.0", "66.0"]
    assert row_of(text, "somebody else") == ["10.0", "-", "30.0", "-", "-", "-", "-"]
    assert "difference" not in text
