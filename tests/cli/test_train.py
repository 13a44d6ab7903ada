import json
import shutil
import statistics

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from diptych.cli.training_bar import TrainingBar
from diptych.errors import CallbackError
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.training.loggers.tensorboard import TensorBoardLogger
from diptych.training.recipe_loader import load_recipe

SCENES = "scenes:train=16,val=6,test=8,texts=2"


@pytest.fixture(scope="module")
def train(invoke, tiny_settings):
    options = ("--device", "cpu", "--workers", "0", *tiny_settings)
    return lambda *words: invoke("train", "scenes", SCENES, *options, *words)


@pytest.fixture(scope="module")
def train_refused(refused, tiny_settings):
    return lambda *words: refused("train", "scenes", SCENES, "--device", "cpu", *tiny_settings, *words)


def test_train_writes_a_run_with_its_report(tiny_run):
    assert (tiny_run / "best" / "weights.safetensors").is_file()
    assert "<html" in (tiny_run / "report.html").read_text()


def test_map_is_measured_after_training_if_a_text_has_several_images(tmp_path, invoke, scenes, tiny_settings):
    options = ("--into", tmp_path / "runs", "--device", "cpu", "--seeds", "1", *tiny_settings)
    words = ("train", "scenes", f"{scenes},images=2", *options)
    assert invoke(*words).exit_code == 0
    assert '<th scope="col">mAP</th>' in (tmp_path / "runs" / "seed-0" / "report.html").read_text()
    first = json.loads((tmp_path / "runs" / "summary.json").read_text())
    assert {"i2t_map", "t2i_map"} <= first["runs"]["seed-0"].keys()
    assert invoke(*words).exit_code == 0  # measures what is there
    assert json.loads((tmp_path / "runs" / "summary.json").read_text()) == first


def test_a_profile_names_the_run_and_is_written_into_its_recipe(tmp_path, monkeypatch, invoke, refused):
    monkeypatch.chdir(tmp_path)
    words = ("train", "scenes", SCENES, "--device", "cpu", "--workers", "0")
    changes = ("--set", "model.image.width=2", "--set", "model.joint=16", "--set", "model.text.hidden=16")
    assert invoke(*words, "--profile", "small", *changes).exit_code == 0
    recipe = load_recipe("runs/scenes-small/recipe.toml")
    assert recipe == load_recipe("scenes-small", changes[1::2])
    assert recipe.model.image.pixels == 32
    assert "--profile smal: no such profile" in refused(*words, "--profile", "smal")
    assert "--profile smal: no such profile" in refused(
        "sweep", "scenes", SCENES, "--over", "seed=1,2", "--profile", "smal"
    )


def test_resume_through_the_command_line(tiny_run, tmp_path, invoke, refused, scenes, tiny_settings):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    words = ["train", "scenes", scenes, "--into", folder, *tiny_settings]
    assert "--resume" in refused(*words)
    assert invoke(*words, "--resume").exit_code == 0


def state(folder):
    files = [file for run in folder.glob("seed-*") for file in run.rglob("*")]
    return {file: file.stat().st_mtime_ns for file in files}


@pytest.fixture(scope="module")
def seeds(tmp_path_factory, train):
    folder = tmp_path_factory.mktemp("seeds") / "runs"
    result = train("--seeds", "0,3", "--into", str(folder))
    assert result.exit_code == 0, result.output
    return folder, result, json.loads((folder / "summary.json").read_text())


def test_seeds_have_a_table_a_summary_and_a_report_per_run(seeds):
    folder, result, summary = seeds
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


def test_another_split_is_measured_without_training(seeds, invoke, train):
    folder = seeds[0]
    before = state(folder)
    again = train("--seeds", "0,3", "--into", str(folder), "--report-on", "test")
    assert again.exit_code == 0, again.output
    assert state(folder) == before
    assert "run 1 of 2" not in again.stderr
    test = json.loads((folder / "summary.json").read_text())
    evaluated = invoke("evaluate", str(folder / "seed-3"), SCENES, "--json", "--device", "cpu")
    assert (test["split"], test["runs"]["seed-3"]) == ("test", json.loads(evaluated.stdout)["metrics"])


def test_after_an_interrupt_the_same_command_continues(seeds, tmp_path, monkeypatch, train):
    step, steps = TrainingBar.on_step, []

    def stopped(bar, *figures):
        step(bar, *figures)
        steps.append(figures)
        if len(steps) == 6:  # in stage 1 of the second run
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TrainingBar, "on_step", stopped)
        ended = train("--seeds", "0,3", "--into", str(tmp_path))
    assert ended.exit_code != 0
    assert f"stopped; run the same command again to continue (folder {tmp_path})" in ended.stderr
    assert (tmp_path / "seed-0" / "report.html").exists()
    assert not (tmp_path / "summary.json").exists()
    again = train("--seeds", "0,3", "--into", str(tmp_path))
    assert "run 1 of 2" not in again.stderr
    for name in ("seed-0", "seed-3"):
        weights = (folder / name / "best" / "weights.safetensors" for folder in (tmp_path, seeds[0]))
        assert len({path.read_bytes() for path in weights}) == 1


def read_scalars(folder, tag):
    events = EventAccumulator(str(folder))
    events.Reload()
    return events.Scalars(tag)


def test_each_run_has_a_log_of_its_own(tmp_path, train, train_refused):
    ended = train("--seeds", "0,3", "--into", str(tmp_path), "--log", "tensorboard", "--log", "tensorboard")
    assert ended.exit_code == 0, ended.output
    for name in ("seed-0", "seed-3"):
        folder = tmp_path / name / "tensorboard"
        assert len(read_scalars(folder, "train/loss")) == 1  # the first step; named twice, logged once
        assert f"tensorboard --logdir {folder}" in ended.stderr
    for option in ((), ("--seeds", "2")):
        said = train_refused(*option, "--into", str(tmp_path / "other"), "--log", "tensorbord")
        assert "--log tensorbord: no such logger; did you mean 'tensorboard'?" in said
    assert not (tmp_path / "other").exists()


def test_a_callback_that_fails_is_named_in_one_line_and_the_run_resumes(tmp_path, monkeypatch, train):
    def full(_logger, _figures, _step):
        raise OSError(28, "No space left on device")

    words = ("--into", str(tmp_path / "run"), "--log", "tensorboard")
    with monkeypatch.context() as patched:
        patched.setattr(TensorBoardLogger, "log", full)
        ended = train(*words)
    assert isinstance(ended.exception, CallbackError)
    assert str(ended.exception).startswith("callback TensorBoardLogger.on_step: OSError: [Errno 28] No space left")
    assert "stopped; run the same command with --resume to continue" in ended.stderr
    assert train(*words, "--resume").exit_code == 0


def test_errors_are_one_line(seeds, tmp_path, train_refused):
    folder = seeds[0]
    assert "--seed and --seeds exclude each other; remove one" in train_refused("--seeds", "2", "--seed", "1")
    assert "remove --resume" in train_refused("--seeds", "2", "--resume")
    assert "--report-on needs --seeds" in train_refused("--report-on", "test")
    assert "--seeds zero: write how many" in train_refused("--seeds", "zero")
    assert "--seeds and a seed were both given" in train_refused("--seeds", "2", "--set", "seed=1")
    assert "no split 'tset'; did you mean 'test'?" in train_refused("--seeds", "2", "--report-on", "tset")
    assert "seed-3: contains a run of another recipe" in train_refused(
        "--seeds", "3,", "--into", str(folder), "--set", "stage.2.objective.margin=0.5"
    )
    assert "seed-0: contains a run, but several runs need a folder" in train_refused(
        "--seeds", "2", "--into", str(folder / "seed-0")
    )
    assert f"{folder}: holds several runs; train --into another folder" in train_refused("--into", str(folder))
    (tmp_path / "file").touch()
    assert "file: is a file; name a folder" in train_refused("--seeds", "2", "--into", str(tmp_path / "file"))


def test_a_run_on_phrases_has_a_report_of_phrases(train_on_phrases, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train_on_phrases("train", "--into", "one")
    assert "trained one, report one/report.html" in result.stdout
    page = (tmp_path / "one" / "report.html").read_text()
    assert 'id="phrases"' in page
    assert "scenes, split val" in page


def test_several_seeds_are_summarised_by_phrases(
    train_on_phrases, tmp_path, monkeypatch, phrase_scenes, phrase_backbone
):
    monkeypatch.chdir(tmp_path)
    result = train_on_phrases("train", "--seeds", "2", "--into", "seeds")
    summary = json.loads((tmp_path / "seeds" / "summary.json").read_text())
    sums = [run["phrase_sum"] for run in summary["runs"].values()]
    assert list(summary["mean"]) == ["phrase_r1", "phrase_r5", "phrase_r10", "phrase_sum"]
    assert summary["mean"]["phrase_sum"] == pytest.approx(sum(sums) / 2)
    assert f"median run by phrase_sum: seeds/{summary['median_run']}" in " ".join(result.stdout.split())
    for name, metrics in summary["runs"].items():
        assert 'id="phrases"' in (tmp_path / "seeds" / name / "report.html").read_text()
        best = json.loads((tmp_path / "seeds" / name / "best" / "metrics.json").read_text())
        assert metrics == best["val"]
    train_on_phrases("train", "--seeds", "2", "--into", "seeds", "--report-on", "test")
    test = json.loads((tmp_path / "seeds" / "summary.json").read_text())
    assert (
        test["runs"]["seed-1"] == evaluate_phrases(tmp_path / "seeds" / "seed-1", phrase_scenes, device="cpu").metrics
    )


@pytest.fixture(scope="module")
def started(photos, invoke, tmp_path_factory):
    """The folder of a run of the default recipe, which starts from the starter, and what the command printed."""
    folder = tmp_path_factory.mktemp("started")
    options = ("--features", folder / "features", "--device", "cpu", "--set", "stage.1.epochs=1")
    result = invoke("train", "diptych-default", photos, "--into", folder / "mine", *options)
    assert result.exit_code == 0, result.output
    return folder, result


def test_the_default_recipe_starts_from_the_starter_and_is_compared_with_it(started):
    folder, result = started
    assert "starts from scratch" not in result.output
    assert "epoch 0/1 (the start)" in result.output
    assert "mine against the starter on val: 2 images, 2 texts" in result.stdout
    assert "difference" in result.stdout
    assert load_recipe(str(folder / "mine" / "recipe.toml")).stage[0].start == "starter"
    stores = [store.name for store in (folder / "features").iterdir() if store.name != "texts"]
    assert len(stores) == 1  # the run and the starter share their features


def test_an_evaluation_compares_with_the_starter_unless_told_not_to(started, photos, invoke):
    folder, _ = started
    command = ("evaluate", folder / "mine", photos, "--features", folder / "features", "--device", "cpu")
    found = json.loads(invoke(*command, "--json").stdout)
    starter = json.loads(invoke("evaluate", "starter", *command[2:], "--json").stdout)
    assert found["starter"]["metrics"] == starter["metrics"]
    assert "starter" not in starter
    difference = found["starter"]["difference"]["differences"]["rsum"]["value"]
    assert difference == pytest.approx(found["metrics"]["rsum"] - starter["metrics"]["rsum"])
    assert "mine against the starter on test: 2 images, 2 texts" in invoke(*command).stdout
    assert found["start"] == found["starter"]  # it is what the run started from
    without = invoke(*command, "--no-starter", "--json")
    assert json.loads(without.stdout) == {key: found[key] for key in found if key not in ("start", "starter")}
