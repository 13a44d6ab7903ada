"""What the loggers share: which figures are logged, under which names, and how often."""

from __future__ import annotations

import importlib
import pkgutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from diptych.errors import DiptychError, did_you_mean
from diptych.training.engine.callbacks import Callback
from diptych.training.engine.events import EpochEnd, Message, StepEnd, TrainingEnd, TrainingStart

# Folders of a run that belong to this run alone: a copy of it must get an id of its own.
OWN_FOLDERS = ("mlflow", "wandb")


class Logger(Callback):
    """Writes figures to an experiment tracker; the x axis is the number of training steps over all stages.

    `train/loss`, `train/rate` and `train/terms/NAME` are those of every n-th step, where `every` is n; `epoch/loss`,
    `epoch/learned/NAME` and `val/METRIC` those of every epoch; `best/METRIC` belong to the weights in best/ at the end.
    """

    def __init__(self, *, every: int = 10) -> None:
        if every < 1:
            raise DiptychError(f"every = {every}: one of how many steps is logged; must be at least 1")
        self._every = every

    @abstractmethod
    def open(self, start: TrainingStart) -> str:
        """Begin a log with the recipe as hyperparameters, or continue that of a resumed run; returns how to see it."""

    @abstractmethod
    def log(self, figures: Mapping[str, float], training_step: int) -> None:
        """Write figures by name."""

    @abstractmethod
    def close(self, end: TrainingEnd, best: Mapping[str, float]) -> None:
        """Write the final figures and how training ended."""

    def on_start(self, start: TrainingStart) -> None:
        """Open the log."""
        start.send(Message(self.open(start)))

    def on_step(self, step: StepEnd) -> None:
        """Log the first step, every n-th step, and none that trained nothing."""
        if step.terms and (step.training_step == 1 or step.training_step % self._every == 0):
            figures = {"train/loss": step.loss, "train/rate": step.rate}
            self.log(figures | _named("train/terms", step.terms), step.training_step)

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """Log the epoch's loss and the metrics on val."""
        loss = {"epoch/loss": epoch.loss} if epoch.epoch else {}  # epoch 0 is what the stage starts from
        figures = {**loss, **_named("epoch/learned", epoch.learned), **_named("val", epoch.metrics)}
        self.log(figures, epoch.training_step)

    def on_end(self, end: TrainingEnd) -> None:
        """Close the log."""
        self.close(end, _named("best", end.best))


def make_logger(name: str) -> Logger:
    """The logger of a name, such as `tensorboard`: the class `LOGGER` of the module with this name."""
    package = __package__ or ""
    known = {info.name for info in pkgutil.iter_modules(importlib.import_module(package).__path__)} - {"logger"}
    if name not in known:
        raise DiptychError(f"--log {name}: no such logger; {did_you_mean(name, known)}")
    logger: Logger = importlib.import_module(f"{package}.{name}").LOGGER()
    return logger


def hyperparameters(start: TrainingStart) -> dict[str, str | int | float | bool]:
    """The values of a recipe by their dotted keys, as `--set` names them."""
    return dict(_flat(start.recipe.to_dict(), ""))


def resumed_id(start: TrainingStart, file: Path) -> str | None:
    """The tracker's id of a run that is resumed, as kept in a file of the run's folder; None for a new run."""
    return file.read_text(encoding="utf-8").strip() if start.is_resumed and file.is_file() else None


def _flat(value: Any, key: str) -> Iterator[tuple[str, str | int | float | bool]]:
    """Dotted keys and values of nested tables and lists of tables; the entries of such a list count from 1."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for number, entry in enumerate(value, 1):
            yield from _flat(entry, f"{key}.{number}")
    else:
        yield key, value if isinstance(value, str | int | float | bool) else str(value)


def _named(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in figures.items()}
