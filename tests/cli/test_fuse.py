"""`diptych fuse` as people use it."""

import pytest

from diptych.data.open import open_corpus
from diptych.errors import RunError
from diptych.training import fusion as fusing
from support.made_runs import random_run

SCENES = "scenes:train=4,val=8,test=6,texts=2"
COMMAND = ("fuse",)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder, texts = tmp_path_factory.mktemp("parts"), open_corpus(SCENES).texts
    return [random_run(folder / "one", texts, seed=1), random_run(folder / "two", texts, seed=2, joint=7)]


def test_all_trials_are_printed_and_the_best_is_written(runs, invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(fusing, "share_grid", lambda parts, step: [(0.75, 0.25), (0.25, 0.75)])
    into = tmp_path / "fused"
    result = invoke(*runs, SCENES, "--into", into, "--device", "cpu")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["one", "two", "weights", "i2t@1", "@5", "@10", "t2i@1", "@5", "@10", "rsum"]
    assert [row[:2] for row in rows[1:3]] == [["0.75", "0.25"], ["0.25", "0.75"]]
    best = max(rows[1:3], key=lambda row: float(row[-1]))
    assert f"{best[0]} {runs[0]}, {best[1]} {runs[1]} (rsum {best[-1]} on val)" in result.stdout
    assert f"diptych evaluate {into} {SCENES}" in result.stderr
    assert (into / "best/weights.safetensors").is_file()


def test_given_shares_are_taken(runs, invoke, tmp_path):
    into = tmp_path / "fused"
    result = invoke(*runs, SCENES, "--into", into, "--shares", "0.4,0.6", "--raw", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert f"0.4 {runs[0]}, 0.6 {runs[1]}" in result.stdout
    assert "0.400 0.600" in result.stdout  # the weights of raw scores are the shares


def test_a_run_that_is_best_alone_is_named_after_the_figures(runs, invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(fusing, "share_grid", lambda parts, step: [(1.0, 0.0)])
    result = invoke(*runs, SCENES, "--into", tmp_path / "fused", "--device", "cpu")
    assert isinstance(result.exception, RunError)
    assert str(result.exception).startswith(f"nothing was written: {runs[0]} alone is best (rsum ")
    assert "1.000 0.000" in result.stdout
    assert not (tmp_path / "fused").exists()


def test_mistakes_are_one_line(runs, refused, tmp_path):
    into = ("--into", tmp_path / "fused")
    assert "name at least two runs to fuse, and the data" in refused(runs[0], SCENES, *into)
    assert "--shares half: write one number per run, such as 0.7,0.3" in refused(
        *runs, SCENES, *into, "--shares", "half"
    )
    assert "step = 0.3: not a fraction" in refused(*runs, SCENES, *into, "--step", "0.3")
    assert "no such run" in refused(runs[0], tmp_path / "none", SCENES, *into)


def test_help_has_examples(invoke):
    assert "diptych fuse runs/mine runs/classes" in invoke("--help").output
