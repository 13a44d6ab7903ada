"""`diptych train --seeds`: a run a seed, their table, and the same command again."""

import json
import statistics

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.errors import DiptychError
from diptych.training.engine.callbacks import Bar

SCENES = "scenes:train=16,val=6,test=8,texts=2"
TINY = [
    *("--set", "model.joint=16", "--set", "model.text.hidden=16", "--set", "model.text.word=8"),
    *("--set", "model.image.width=2", "--set", "model.image.pixels=32"),
    *("--set", "stage.1.batches.size=16", "--set", "stage.2.batches.size=16", "--set", "stage.2.epochs=1"),
]


def invoke(*words):
    return CliRunner().invoke(app, ["train", "scenes", SCENES, "--device", "cpu", "--workers", "0", *TINY, *words])


def refused(*words):
    """The one line that the command refuses with."""
    result = invoke(*words)
    assert isinstance(result.exception, DiptychError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def state(folder):
    files = [file for run in folder.glob("seed-*") for file in run.rglob("*")]
    return {file: file.stat().st_mtime_ns for file in files}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds") / "runs"
    result = invoke("--seeds", "0,3", "--into", str(folder))
    assert result.exit_code == 0, result.output
    return folder, result, json.loads((folder / "summary.json").read_text())


def test_a_table_a_summary_and_a_report_a_run(trained):
    folder, result, summary = trained
    assert "run 1 of 2: seed-0" in result.stderr
    assert "run 2 of 2: seed-3" in result.stderr
    assert (summary["split"], summary["recipe"], summary["data"]) == ("val", "scenes", SCENES)
    assert list(summary["runs"]) == ["seed-0", "seed-3"]
    sums = [run["rsum"] for run in summary["runs"].values()]
    assert summary["mean"]["rsum"] == pytest.approx(statistics.fmean(sums))
    assert summary["std"]["rsum"] == pytest.approx(statistics.stdev(sums))
    assert summary["runs"][summary["median_run"]]["rsum"] == min(sums)
    assert f"{summary['mean']['rsum']:.1f}" in result.stdout
    assert f"({summary['std']['rsum']:.2f})" in result.stdout
    printed = "".join(result.stdout.split())
    assert f"medianrunbyrsum:{folder / summary['median_run']},thelowerofthetwomiddleones" in printed
    for name in summary["runs"]:
        best = json.loads((folder / name / "best" / "metrics.json").read_text())
        assert summary["runs"][name] == best["val"]
        assert "<html" in (folder / name / "report.html").read_text()


def test_on_another_split_it_only_measures(trained):
    folder = trained[0]
    before = state(folder)
    again = invoke("--seeds", "0,3", "--into", str(folder), "--report-on", "test")
    assert again.exit_code == 0, again.output
    assert state(folder) == before
    assert "run 1 of 2" not in again.stderr
    test = json.loads((folder / "summary.json").read_text())
    evaluated = CliRunner().invoke(app, ["evaluate", str(folder / "seed-3"), SCENES, "--json", "--device", "cpu"])
    assert (test["split"], test["runs"]["seed-3"]) == ("test", json.loads(evaluated.stdout)["metrics"])


def test_stopped_the_same_command_goes_on(trained, tmp_path, monkeypatch):
    step, steps = Bar.step, []

    def stopped(bar, *figures):
        step(bar, *figures)
        steps.append(figures)
        if len(steps) == 6:  # in stage 1 of the second run
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Bar, "step", stopped)
        ended = invoke("--seeds", "0,3", "--into", str(tmp_path))
    assert ended.exit_code != 0
    assert f"stopped; run the same command again to continue (folder {tmp_path})" in ended.stderr
    assert (tmp_path / "seed-0" / "report.html").exists()
    assert not (tmp_path / "summary.json").exists()
    again = invoke("--seeds", "0,3", "--into", str(tmp_path))
    assert "run 1 of 2" not in again.stderr
    for name in ("seed-0", "seed-3"):
        weights = (folder / name / "best" / "weights.safetensors" for folder in (tmp_path, trained[0]))
        assert len({path.read_bytes() for path in weights}) == 1


def test_refusals_are_one_line(trained, tmp_path):
    folder = trained[0]
    assert "--seed and --seeds exclude each other; remove one" in refused("--seeds", "2", "--seed", "1")
    assert "remove --resume" in refused("--seeds", "2", "--resume")
    assert "--report-on needs --seeds" in refused("--report-on", "test")
    assert "--seeds zero: write how many" in refused("--seeds", "zero")
    assert "--seeds and a seed of its own" in refused("--seeds", "2", "--set", "seed=1")
    assert "no split 'tset'; did you mean 'test'?" in refused("--seeds", "2", "--report-on", "tset")
    assert "seed-3: holds a run of another recipe" in refused(
        "--seeds", "3,", "--into", str(folder), "--set", "stage.2.objective.margin=0.5"
    )
    assert "seed-0: holds a run, and several need a folder" in refused("--seeds", "2", "--into", str(folder / "seed-0"))
    assert f"{folder}: holds several runs; train --into another folder" in refused("--into", str(folder))
    (tmp_path / "file").touch()
    assert "file: is a file; name a folder" in refused("--seeds", "2", "--into", str(tmp_path / "file"))
