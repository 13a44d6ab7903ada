"""MLflow runs in a local store, read back with MLflow's client."""

import os

import pytest
from mlflow import MlflowClient

from diptych.training.loggers.mlflow import MLflowLogger


@pytest.fixture(scope="module")
def client(logged_run):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_ALLOW_FILE_STORE"):
            patch.delenv(name, raising=False)
        logged_run.train_with_interruption(lambda: MLflowLogger(every=2))
        assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield MlflowClient(tracking_uri=(logged_run.folder / "mlflow").as_uri())


@pytest.fixture(scope="module")
def run(client):
    experiment = client.get_experiment_by_name("diptych")
    [run] = client.search_runs([experiment.experiment_id])
    return run


def test_a_resumed_run_is_one_run_with_continued_curves(client, run, logged_run):
    assert run.info.run_id == (logged_run.folder / "mlflow" / "diptych-id.txt").read_text()
    assert (run.info.run_name, run.info.status) == ("my run", "FINISHED")
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [metric.step for metric in losses] == [1, *range(2, logged_run.steps + 1, 2)]
    rsums = client.get_metric_history(run.info.run_id, "val/rsum")
    assert [metric.step for metric in rsums] == [3, 6, 9]
    assert [metric.value for metric in rsums] == pytest.approx(logged_run.rsums)


def test_recipe_terms_rate_and_best_metrics(run, logged_run):
    assert run.data.params["stage.1.epochs"] == "3"
    assert run.data.params["stage.1.objective.name"] == "hinge"
    assert any(name.startswith("train/terms/") for name in run.data.metrics)
    assert run.data.metrics["train/rate"] > 0
    assert run.data.metrics["best/rsum"] == pytest.approx(max(logged_run.rsums))


def test_another_store_gets_a_run_of_its_own(client, run, logged_run, tmp_path, monkeypatch):
    """MLFLOW_TRACKING_URI wins; an id that this store does not know begins a new run."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    logged_run.train(MLflowLogger(), resume=True)  # nothing is left to train
    other = MlflowClient(tracking_uri=tmp_path.as_uri())
    [begun] = other.search_runs([other.get_experiment_by_name("mine").experiment_id])
    assert begun.info.run_id != run.info.run_id
    assert begun.data.metrics["best/rsum"] == pytest.approx(max(logged_run.rsums))
    assert logged_run.callback.messages[-1].endswith(f"of experiment mine at {tmp_path.as_uri()}")


@pytest.mark.parametrize(
    ("reason", "status"), [("interrupted", "KILLED"), ("failed", "FAILED"), ("stopped", "FINISHED")]
)
def test_the_status_says_how_training_ended(reason, status, logged_run, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    start = type("Start", (), {"run": tmp_path, "recipe": logged_run.recipe, "is_resumed": False, "training_step": 0})
    logger = MLflowLogger()
    logger.open(start)
    logger.close(type("End", (), {"reason": reason}), {})
    assert logger._client.get_run((tmp_path / "mlflow" / "diptych-id.txt").read_text()).info.status == status
