"""Log to MLflow: to a store in the run's folder, unless MLFLOW_TRACKING_URI names another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from shlex import quote
from typing import Any

from diptych.files import write_text
from diptych.optional import import_optional
from diptych.training.engine.events import TrainingEnd, TrainingStart
from diptych.training.loggers.logger import Logger, hyperparameters, resumed_id

LONGEST_VALUE = 500  # of a parameter, in every version of MLflow
MOST_PARAMETERS = 100  # in one call
STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MLflowLogger(Logger):
    """Logs a run of an experiment, which defaults to MLFLOW_EXPERIMENT_NAME or "diptych"."""

    def __init__(self, *, experiment: str | None = None, every: int = 10) -> None:
        super().__init__(every=every)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read by the import
        self._mlflow = import_optional("mlflow", "pip install 'diptych[mlflow]'", "another logger")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "diptych")

    def open(self, start: TrainingStart) -> str:
        """Begin a run; a resumed run keeps its id."""
        folder = start.run / "mlflow"
        remote = os.environ.get("MLFLOW_TRACKING_URI")
        with _file_store_allowed():
            self._client = self._mlflow.MlflowClient(tracking_uri=remote or folder.resolve().as_uri())
        id_file = folder / "diptych-id.txt"
        run = self._find_run(resumed_id(start, id_file))
        if run is None:
            run = self._client.create_run(self._experiment_id(), run_name=start.run.resolve().name)
        self._id = run.info.run_id
        write_text(id_file, self._id)
        self._client.update_run(self._id, status="RUNNING")
        self._log_parameters(start, run.data.params)
        self._last_step = start.training_step
        if remote:
            return f"mlflow: run {self._id} of experiment {self._experiment} at {remote}"
        return f"mlflow: see it with: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {quote(str(folder))}"

    def log(self, figures: Mapping[str, float], training_step: int) -> None:
        """Add a point to each curve."""
        self._last_step = training_step
        now = int(time.time() * 1000)
        metric = self._mlflow.entities.Metric
        self._client.log_batch(self._id, [metric(name, value, now, training_step) for name, value in figures.items()])

    def close(self, end: TrainingEnd, best: Mapping[str, float]) -> None:
        """Log the best metrics, and how the run ended."""
        self.log(best, self._last_step)
        self._client.set_terminated(self._id, STATUS[end.reason])

    def _find_run(self, identity: str | None) -> Any:
        """The run that a resumed training continues; None if it is in another store or was deleted."""
        if identity is None:
            return None
        try:
            return self._client.get_run(identity)
        except self._mlflow.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        identity: str = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        return identity

    def _log_parameters(self, start: TrainingStart, known: Mapping[str, str]) -> None:
        """Log the recipe; a parameter that is known cannot change, even if a later stage of the recipe has."""
        new = iter([(key, value) for key, value in hyperparameters(start).items() if key not in known])
        while some := list(islice(new, MOST_PARAMETERS)):
            params = [self._mlflow.entities.Param(key, str(value)[:LONGEST_VALUE]) for key, value in some]
            self._client.log_batch(self._id, params=params)


@contextmanager
def _file_store_allowed() -> Iterator[None]:
    """Allow a store of plain files, which newer versions of MLflow refuse unless this variable is set."""
    name = "MLFLOW_ALLOW_FILE_STORE"
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


LOGGER = MLflowLogger
