"""`diptych sweep`: the table, what it writes, and the same command again."""

import json

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app

SCENES = "scenes:train=16,val=6,test=8,texts=2"
MARGIN, RATE = "stage.2.objective.margin", "stage.2.optimiser.rate"


@pytest.fixture(scope="module")
def invoke(invoke, tiny_settings):
    options = ("--device", "cpu", "--workers", "0", *tiny_settings)
    return lambda *words: invoke("sweep", "scenes", SCENES, *options, *words)


def state(folder):
    runs = [run for run in folder.iterdir() if run.is_dir()]
    return {file: file.stat().st_mtime_ns for run in runs for file in run.rglob("*")}


@pytest.fixture(scope="module")
def swept(tmp_path_factory, invoke):
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    result = invoke("--over", f"{MARGIN}=0.1,0.2", "--over", f"{RATE}=0.001,0.1", "--into", str(folder))
    assert result.exit_code == 0, result.output
    return folder, result, json.loads((folder / "summary.json").read_text()), (folder / "summary.md").read_text()


def test_one_block_per_key_and_equal_runs_once(swept):
    folder, result, summary, markdown = swept
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == [
        "margin=0.1",
        "margin=0.2",
        "rate=0.1",
        "shared",
        "summary.json",
        "summary.md",
    ]
    assert len(list((folder / "shared").iterdir())) == 1
    assert "stage 1, shared by 3 runs" in result.stderr
    assert "run 3 of 3: rate=0.1" in result.stderr
    assert [(row["values"], row["own"], row["median_run"]) for row in summary["settings"]] == [
        ({MARGIN: "0.1"}, False, "margin=0.1"),
        ({MARGIN: "0.2"}, True, "margin=0.2"),
        ({RATE: "0.001"}, True, "margin=0.2"),
        ({RATE: "0.1"}, False, "rate=0.1"),
    ]
    assert summary["split"] == "val"
    for name in ("margin=0.1", "margin=0.2", "rate=0.1"):
        best = json.loads((folder / name / "best" / "metrics.json").read_text())["val"]
        assert best in [row["runs"].get(name) for row in summary["settings"]]
        assert "<html" in (folder / name / "report.html").read_text()
    best = summary["best"]
    assert best["val_rsum"] == max(row["val_rsum"] for row in summary["settings"])
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith("best by rsum on val: ")
    assert "0.2 *" in result.stdout
    assert markdown.startswith(f"scenes on {SCENES}, split val\n\n| Hyp. | Val. | I2T R@1 |")
    assert last in markdown


def test_the_same_command_again_only_measures(swept, invoke):
    folder = swept[0]
    before = state(folder)
    again = invoke(
        *("--over", f"{MARGIN}=0.1,0.2", "--over", f"{RATE}=0.001,0.1", "--into", str(folder), "--report-on", "test")
    )
    assert again.exit_code == 0, again.output
    assert state(folder) == before
    assert "run 1 of" not in again.stderr
    summary = json.loads((folder / "summary.json").read_text())
    run = folder / "rate=0.1"
    evaluated = CliRunner().invoke(app, ["evaluate", str(run), SCENES, "--json", "--device", "cpu"])
    assert summary["settings"][3]["runs"]["rate=0.1"] == json.loads(evaluated.stdout)["metrics"]
    best = json.loads((run / "best" / "metrics.json").read_text())["val"]
    assert summary["settings"][3]["val_rsum"] == best["rsum"]


@pytest.mark.long
def test_a_grid_with_seeds(tmp_path, invoke):
    words = ("--over", f"{MARGIN}=0.1", "--over", f"{RATE}=0.001,0.1", "--grid", "--seeds", "2")
    result = invoke(*words, "--into", str(tmp_path))
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [list(row["runs"]) for row in summary["settings"]] == [
        [f"margin=0.1,rate={rate},seed={seed}" for seed in (0, 1)] for rate in ("0.001", "0.1")
    ]
    assert all(row["std"] is not None for row in summary["settings"])
    assert "| margin, rate | 0.1, 0.001 | " in (tmp_path / "summary.md").read_text()


def test_errors_come_before_training(tmp_path, refused):
    into = ("--into", str(tmp_path / "none"))
    assert "did you mean 'margin'?" in refused("--over", "stage.2.objective.marign=0.1", *into)
    assert "there are stages 1 to 2, not '4'" in refused("--over", "stage.4.epochs=1", *into)
    assert "write KEY=VALUE,VALUE" in refused("--over", MARGIN, *into)
    assert "no split 'tset'" in refused("--over", f"{MARGIN}=0.1", "--report-on", "tset", *into)
    assert not (tmp_path / "none").exists()
    part = "--over", "stage.2.trainable=['all'],['txt']"
    assert "stage.2.trainable: the model has no part 'txt'; did you mean 'text'?" in refused(*part, *into)
    assert not (tmp_path / "none").exists()


def test_a_sweep_on_phrases_chooses_by_their_sum(train_on_phrases, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train_on_phrases("sweep", "--over", "stage.1.objective.margin=0.1,0.2", "--into", "sweep")
    best = json.loads((tmp_path / "sweep" / "summary.json").read_text())["best"]
    assert f"best by phrase_sum on val: margin = {best['values']['stage.1.objective.margin']}" in result.stdout
    assert best["val_phrase_sum"] == best["mean"]["phrase_sum"]
    assert "| PHRASE R@1 |" in (tmp_path / "sweep" / "summary.md").read_text()
