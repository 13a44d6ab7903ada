"""Log to Weights & Biases: offline in the run's folder, unless WANDB_MODE says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from shlex import quote

from diptych.files import write_text
from diptych.optional import import_optional
from diptych.training.engine.events import TrainingEnd, TrainingStart
from diptych.training.loggers.logger import Logger, resumed_id


class WandbLogger(Logger):
    """Logs a run of a project, which defaults to WANDB_PROJECT or "diptych".

    Nothing is sent unless WANDB_MODE is set to "online"; `wandb sync` uploads what was logged offline.
    """

    def __init__(self, *, project: str | None = None, every: int = 10) -> None:
        super().__init__(every=every)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # reports of its own errors; read by the import
        self._wandb = import_optional("wandb", "pip install 'diptych[wandb]'", "another logger")
        self._project = project or os.environ.get("WANDB_PROJECT", "diptych")

    def open(self, start: TrainingStart) -> str:
        """Begin a run; a resumed run keeps its id."""
        folder = start.run / "wandb"
        id_file = folder / "diptych-id.txt"
        resumed = resumed_id(start, id_file)
        mode = os.environ.get("WANDB_MODE", "offline")
        folder.mkdir(parents=True, exist_ok=True)  # otherwise it takes the temporary folder
        self._run = self._wandb.init(
            project=self._project,
            name=start.run.resolve().name,
            id=resumed,
            resume="allow" if resumed else None,
            dir=str(start.run),
            mode=mode,
            config=start.recipe.to_dict(),
            settings=self._wandb.Settings(console="off", silent=mode == "offline"),
        )
        write_text(id_file, self._run.id)
        # An own x axis: that of wandb cannot step back, as a run does that resumes from an earlier snapshot.
        self._run.define_metric("training_step", hidden=True)
        self._run.define_metric("*", step_metric="training_step")
        if mode != "offline":
            return f"wandb: {mode}, run {self._run.id} of project {self._project}"
        files = f"{quote(str(folder))}/offline-run-*-{self._run.id}*"
        return f"wandb: offline, nothing is sent; upload it with: wandb sync {files}"

    def log(self, figures: Mapping[str, float], training_step: int) -> None:
        """Add a row."""
        self._run.log({**figures, "training_step": training_step})

    def close(self, end: TrainingEnd, best: Mapping[str, float]) -> None:
        """Write the best metrics to the run's summary, and finish it; wandb shows exit code 1 as failed."""
        self._run.summary.update(dict(best))
        self._run.finish(exit_code=0 if end.reason in ("finished", "stopped") else 1)


LOGGER = WandbLogger
