"""Comparisons of runs that find phrases, of what they are said to have found."""

import io
import math
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from diptych.data.formats.scenes import make_scenes
from diptych.errors import DataError, RunError
from diptych.evaluation.localisation.phrase_metrics import GroundingResult, paired_phrase_difference
from diptych.report.comparison import phrases as phrase_comparison
from diptych.report.comparison.phrases import compare_phrases
from diptych.training.recipe_loader import load_recipe

CORPUS = make_scenes(train=1, val=1, test=4, texts=1)
IMAGES = np.array([0, 0, 1, 1, 2, 3])
RANKS = {"plain": [1, 1, 3, 7, 2, math.inf], "<b>|[b]": [2, 1, 20, 7, 1, math.inf], "third": [1] * 6}


def found(name, rows=range(6)):
    rows = np.array(rows)
    kinds = [("circle",)] * len(rows)
    return GroundingResult(
        np.array(RANKS[name], float)[rows], IMAGES[rows], kinds, rows, np.zeros((len(rows), 4), np.float32)
    )


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(phrase_comparison, "Model", SimpleNamespace(load=lambda run, device, stores: run.name))
    for name in RANKS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text(load_recipe("phrases-scenes").to_toml())
    return [tmp_path / name for name in RANKS]


def test_every_run_is_compared_with_the_first(runs):
    comparison = compare_phrases(runs, CORPUS, localise=lambda name, trained, part: found(name))
    assert comparison.title == "scenes, split test: 6 phrases in 4 images"
    assert comparison.runs[0].difference is None
    for run in comparison.runs[1:]:
        assert run.difference == paired_phrase_difference(found("plain"), found(run.name))
    told = comparison.to_json()
    assert (told["baseline"], told["data"]["split"]) == ("plain", "test")
    assert [run["metrics"]["phrase_r1"] for run in told["runs"]] == pytest.approx([100 / 3, 100 / 3, 100])
    assert told["runs"][0]["title"] == load_recipe("phrases-scenes").title


def test_names_are_escaped_in_the_tables(runs):
    comparison = compare_phrases(runs, CORPUS, localise=lambda name, trained, part: found(name))
    lines = comparison.to_markdown().splitlines()
    assert lines[2] == "| run | R@1 | R@5 | R@10 | sum | ceiling |"
    assert lines[4].startswith("| plain | 33.3 [")
    assert lines[6].startswith(r"| \<b\>\|\[b\] − plain | +0.0 n.s. [")
    assert "**+66.7**" in lines[8]
    console = Console(file=io.StringIO(), width=80)
    console.print(comparison.render())
    text = console.file.getvalue()
    assert "<b>|[b]" in text
    assert "+66.7*" in text
    assert text.count("third") == 3  # recalls, their sum, the ceiling
    assert "…" not in text


def test_a_photo_that_one_run_cannot_read_is_skipped_for_all(runs):
    seen = {"plain": range(6), "<b>|[b]": [0, 1, 4, 5], "third": range(5)}
    comparison = compare_phrases(runs, CORPUS, localise=lambda name, trained, part: found(name, seen[name]))
    assert [run.found.rows.tolist() for run in comparison.runs] == [[0, 1, 4]] * 3
    assert comparison.runs[0].found.metrics["phrase_r1"] == pytest.approx(200 / 3)
    seen["third"] = [2, 3]
    with pytest.raises(DataError, match="no image can be read by all runs"):
        compare_phrases(runs, CORPUS, localise=lambda name, trained, part: found(name, seen[name]))


def test_one_run_or_runs_of_different_tasks_are_refused(runs, tmp_path):
    with pytest.raises(RunError, match="only one run"):
        compare_phrases(runs[:1], CORPUS)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "recipe.toml").write_text(load_recipe("scenes").to_toml())
    with pytest.raises(RunError, match=r"whole: was not trained on phrases, but .*plain was; compare runs of"):
        compare_phrases([runs[0], tmp_path / "whole"], CORPUS)
