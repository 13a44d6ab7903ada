"""The tasks of a reproduction: train a run and measure it, mine its lists, or measure several runs together.

A task can be interrupted and repeated: training resumes, and what is finished is not done again. Tasks are plain data,
so that another process can perform them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.errors import RunError
from diptych.files import locked_file, read_json, write_json, write_text
from diptych.mining.lists import LISTS_FILE, weights_digest
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.models.storage import load_about
from diptych.reproduction.measuring import Cost, Measurer
from diptych.reproduction.planned_run import PlannedRun
from diptych.training.engine.callbacks import Callback, StopTraining
from diptych.training.engine.checkpoint import Position, snapshot_path
from diptych.training.engine.events import EpochEnd, Message, Preparation, StageStart, StepEnd
from diptych.training.sweep import copy_run
from diptych.training.train import train

RUNS, RECORDS, RECIPES = "runs", "records", "recipes"
_LONGEST_TURN = 86400.0  # seconds that a task may wait for another one's features
_COST = ".cost.json"  # of one run alone: hidden files are not copied to runs that begin as copies


class OutOfTimeError(Exception):
    """The time of the budget has passed; what was done is saved."""


@dataclass(frozen=True)
class Workplace:
    """Where and with what tasks are performed; `report` receives a line about the progress.

    `deadline` is the time of `time.monotonic` at which a training stops, if any.
    """

    into: Path
    corpus: Corpus
    stores: Path
    device: str = "auto"
    workers: int = 0
    deadline: float | None = None
    report: Callable[[str], None] = lambda _: None

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.into / RUNS

    @property
    def records(self) -> Path:
        """The folder of the records."""
        return self.into / RECORDS

    @property
    def measurer(self) -> Measurer:
        """Measures runs on the corpus."""
        return Measurer(self.corpus, self.stores, self.device, self.workers)


@dataclass(frozen=True)
class TrainTask:
    """Train a run, beginning as a copy of `prefix` if given, and measure it unless it is only the prefix of others.

    `pairs` are those of an epoch, and `shared_epochs` the epochs of the prefix.
    """

    run: PlannedRun
    pairs: int
    prefix: str | None = None
    shared_epochs: int = 0
    is_measured: bool = True

    @property
    def id(self) -> str:
        """What other tasks call it."""
        return train_id(self.run.key)

    @property
    def needs(self) -> tuple[str, ...]:
        """The tasks that must be finished first."""
        starts = [train_id(key) for key in (self.run.start, self.prefix) if key is not None]
        return (*starts, *(mine_id(lists.run) for lists in self.run.lists))

    @property
    def title(self) -> str:
        """What people read."""
        shared = "" if self.is_measured else ", stages that several runs share"
        return f"{self.run.title}{shared}, seed {self.run.recipe.seed}"

    def perform(self, place: Workplace) -> None:
        """Train and measure; raises OutOfTimeError after saving, if the deadline has passed."""
        folder = place.runs / self.run.key
        if not is_trained(folder, self.run):
            if self.prefix is not None and not (folder / "recipe.toml").exists():
                copy_run(place.runs / self.prefix, folder)
            self._train(place, folder)
        if self.is_measured:
            place.report("measuring")
            cost = Cost(*_cost(folder), self.pairs)
            with self._turn(place):
                record = place.measurer.run(self.run, folder, cost)
            recipe = self.run.in_folder(place.runs.absolute())
            write_text(place.into / RECIPES / f"{self.run.key}.toml", recipe.to_toml())
            record.save(place.records)

    def _train(self, place: Workplace, folder: Path) -> None:
        spent, epochs = _cost(folder)
        clock = _Clock(place, partial(self._turn, place))
        with clock.preparing():
            try:
                train(
                    self.run.in_folder(place.runs.absolute()),
                    place.corpus,
                    folder,
                    resume=(folder / "recipe.toml").exists(),
                    device=place.device,
                    workers=place.workers,
                    callbacks=[clock],
                    features=place.stores,
                )
            finally:
                if folder.exists():
                    write_json(folder / _COST, {"seconds": spent + clock.seconds, "epochs": epochs + clock.epochs})
        if not is_trained(folder, self.run):
            raise OutOfTimeError

    def _turn(self, place: Workplace) -> AbstractContextManager[None]:
        """Wait until no other task computes features for the same images: those that it stores are then read."""
        model = self.run.recipe.model
        images = "" if model is None else json.dumps(model.model_dump(mode="json").get("image"), sort_keys=True)
        name = f"reproduce-{hashlib.sha256(images.encode()).hexdigest()[:10]}"
        return locked_file(place.stores / name, RunError, timeout=_LONGEST_TURN)


@dataclass(frozen=True)
class MineTask:
    """Mine the lists of a trained run."""

    key: str
    run_title: str
    top_texts: int
    top_images: int
    splits: tuple[str, ...]

    @property
    def id(self) -> str:
        """What other tasks call it."""
        return mine_id(self.key)

    @property
    def needs(self) -> tuple[str, ...]:
        """The tasks that must be finished first."""
        return (train_id(self.key),)

    @property
    def title(self) -> str:
        """What people read."""
        return f"lists of hard negatives by {self.run_title}"

    def perform(self, place: Workplace) -> None:
        """Mine the training set."""
        folder = place.runs / self.key
        model = Model.load(folder, place.device, stores=place.stores)
        mine(
            model,
            place.corpus.split(*self.splits).matched(),
            folder / LISTS_FILE,
            weights=weights_digest(folder),
            top_texts=self.top_texts,
            top_images=self.top_images,
            workers=place.workers,
            progress=lambda done, total: place.report(f"mining, {done:,} of {total:,}"),
        )


@dataclass(frozen=True)
class TogetherTask:
    """Measure trained runs together: their mean score, combined with that of a run that localises `phrases`."""

    key: str
    run_title: str
    runs: tuple[str, ...]
    phrases: str | None = None
    share: float = 0.0

    @property
    def id(self) -> str:
        """What other tasks call it."""
        return f"together {self.key}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The tasks that must be finished first."""
        return tuple(train_id(key) for key in (*self.runs, *([] if self.phrases is None else [self.phrases])))

    @property
    def title(self) -> str:
        """What people read."""
        return self.run_title

    def perform(self, place: Workplace) -> None:
        """Measure them."""
        folders = [place.runs / key for key in self.runs]
        phrases = None if self.phrases is None else place.runs / self.phrases
        place.measurer.together(self.key, self.run_title, folders, phrases, self.share).save(place.records)


Task = TrainTask | MineTask | TogetherTask


def train_id(key: str) -> str:
    """The id of the task that trains a run."""
    return f"train {key}"


def mine_id(key: str) -> str:
    """The id of the task that mines with a run."""
    return f"mine {key}"


def is_trained(folder: Path, run: PlannedRun) -> bool:
    """Whether a folder contains a run, trained to its end."""
    if not snapshot_path(folder).exists():
        return False
    position = Position(**load_about(snapshot_path(folder))["position"])
    return position.stage_done and position.stage == len(run.recipe.stage)


@dataclass
class _Clock(Callback):
    """Measures the CPU time of a training's epochs, reports its progress, and stops it at the deadline.

    While a stage is prepared, which may compute features, the training has its `turn`, and no time is counted: features
    are computed for all runs, by the first one that needs them.
    """

    place: Workplace
    turn: Callable[[], AbstractContextManager[None]]
    seconds: float = 0.0
    epochs: int = 0
    _last: float = field(default_factory=time.process_time)
    _turns: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Take the first turn, and end the last one."""
        with self._turns:
            self._turns.enter_context(self.turn())
            yield

    def on_stage_start(self, stage: StageStart) -> None:
        """The stage is prepared."""
        self._stages, self._last = stage.stages, time.process_time()
        self._turns.close()

    def on_preparation(self, preparation: Preparation) -> None:
        """Report it."""
        self.place.report(f"{preparation.what}, {preparation.done:,} of {preparation.total:,}")

    def on_message(self, message: Message) -> None:
        """Report it."""
        self.place.report(message.text)

    def on_step(self, step: StepEnd) -> None:
        """Stop if the time has passed."""
        self._tick()
        if self.place.deadline is not None and time.monotonic() > self.place.deadline:
            raise StopTraining

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """Report it."""
        self._tick()
        self.epochs += epoch.epoch > 0
        if epoch.epoch == epoch.epochs and epoch.stage < self._stages:
            self._turns.enter_context(self.turn())
        self.place.report(f"stage {epoch.stage}, epoch {epoch.epoch} of {epoch.epochs}, val {epoch.summary}")

    def _tick(self) -> None:
        now = time.process_time()
        self.seconds, self._last = self.seconds + now - self._last, now


def _cost(folder: Path) -> tuple[float, int]:
    """The CPU time of a run so far, and the number of its finished epochs."""
    file = folder / _COST
    if not file.is_file():
        return 0.0, 0
    content = read_json(file, RunError)
    return float(content["seconds"]), int(content["epochs"])
