from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.errors import DataError, ImageError, RunError
from diptych.evaluation.runs import evaluate
from diptych.model import Model
from diptych.report.run_evaluator import RunEvaluator, train_and_measure
from diptych.training.recipe_loader import load_recipe

SMALL = ["model.joint=8", "model.text.hidden=8", "model.text.word=4", "model.image.width=2", "model.image.pixels=16"]


class Broken:
    def load(self):
        raise ImageError("broken.jpg: damaged")


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("report.html"))


def test_a_report_shows_the_metrics_that_are_returned(copied, corpus):
    model = Model.load(copied, "cpu")
    metrics = RunEvaluator(corpus).write_report(copied, model, "test").metrics
    assert metrics == evaluate(model, corpus, "test").metrics.to_json()
    page = (copied / "report.html").read_text()
    assert "split test" in page
    assert f'<span class="value">{metrics["rsum"]:.1f}</span>' in page
    assert 'id="hard-negatives"' in page


def test_metrics_are_those_of_a_report_without_writing_one(copied, corpus):
    model, evaluator = Model.load(copied, "cpu"), RunEvaluator(corpus)
    metrics = evaluator.metrics(copied, model, "val")
    assert not (copied / "report.html").exists()
    assert metrics == evaluator.write_report(copied, model).metrics


def test_several_images_per_text_add_average_precision(copied):
    corpus = make_scenes(train=4, val=4, test=4, texts=2, images=2)
    model, evaluator = Model.load(copied, "cpu"), RunEvaluator(corpus)
    metrics = evaluator.metrics(copied, model, "val")
    assert {"i2t_map", "t2i_map"} <= metrics.keys()
    assert metrics == evaluator.write_report(copied, model).metrics


def test_progress_and_skipped_images_are_reported(copied, corpus):
    part = corpus.split("test")
    pictures = [Broken(), *part.pictures[1:]]
    titles, skipped = [], []

    @contextmanager
    def progress(title):
        titles.append(title)
        yield lambda done, total: None

    broken = type(part)(**{**vars(part), "pictures": pictures})
    evaluator = RunEvaluator(broken, progress=progress, on_skipped=skipped.append)
    evaluator.metrics(copied, Model.load(copied, "cpu"), "test")
    assert titles == ["encoding test with run"]
    assert skipped == [{part.image_ids[0]: "broken.jpg: damaged"}]


@pytest.fixture(scope="module")
def small_corpus():
    return make_scenes(train=8, val=4, test=4, texts=2)


def test_runs_are_trained_once_and_measured_on_each_split(small_corpus, tmp_path):
    runs = {f"seed-{seed}": load_recipe("scenes", [*SMALL, "stage.2.epochs=1", f"seed={seed}"]) for seed in (0, 1)}
    evaluator = RunEvaluator(small_corpus)
    options = {"device": "cpu", "workers": 0, "features": tmp_path / "features"}
    measured = train_and_measure(runs, tmp_path / "runs", {"test"}, evaluator, **options)
    assert list(measured) == ["seed-0", "seed-1"]
    assert [list(metrics) for metrics in measured.values()] == [["val", "test"]] * 2  # val for the report
    weights = tmp_path / "runs" / "seed-1" / "best" / "weights.safetensors"
    trained = weights.stat().st_mtime_ns
    again = train_and_measure(runs, tmp_path / "runs", {"val", "test"}, evaluator, **options)
    assert again == measured
    assert weights.stat().st_mtime_ns == trained


def test_what_cannot_be_measured_is_refused_before_training(small_corpus, tmp_path):
    evaluator, runs = RunEvaluator(small_corpus), {"a": load_recipe("scenes", SMALL)}
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is a file; name a folder"):
        train_and_measure(runs, tmp_path / "file", {"val"}, evaluator)
    with pytest.raises(DataError, match="restval"):
        train_and_measure(runs, tmp_path / "runs", {"restval"}, evaluator)
    assert not (tmp_path / "runs").exists()
