"""Log to TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from diptych.optional import import_optional
from diptych.training.engine.events import TrainingEnd, TrainingStart
from diptych.training.loggers.logger import Logger, hyperparameters


class TensorBoardLogger(Logger):
    """Writes event files to a folder, by default to `tensorboard` in the run's folder."""

    def __init__(self, folder: Path | str | None = None, *, every: int = 10) -> None:
        super().__init__(every=every)
        import_optional("tensorboard", "pip install 'diptych[tensorboard]'", "another logger")
        self._folder = folder

    def open(self, start: TrainingStart) -> str:
        """Begin a new event file; TensorBoard then ignores what a killed run logged after its last snapshot."""
        from torch.utils.tensorboard import SummaryWriter

        folder = start.run / "tensorboard" if self._folder is None else Path(self._folder)
        self._recipe, self._last_step = hyperparameters(start), start.training_step
        purge_step = start.training_step + 1 if start.is_resumed else None
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)
        self._writer.add_text("recipe", f"```toml\n{start.recipe.to_toml()}```", start.training_step)
        return f"tensorboard: see the curves with: tensorboard --logdir {quote(str(folder))}"

    def log(self, figures: Mapping[str, float], training_step: int) -> None:
        """Add a point to each curve."""
        self._last_step = training_step
        for name, value in figures.items():
            self._writer.add_scalar(name, value, training_step)

    def close(self, end: TrainingEnd, best: Mapping[str, float]) -> None:
        """Add the hyperparameters with the best metrics, for the tab HPARAMS."""
        # Its own event file, in the same folder: otherwise they would appear as another run.
        self._writer.add_hparams(self._recipe, dict(best), run_name=".", global_step=self._last_step)
        self._writer.close()


LOGGER = TensorBoardLogger
