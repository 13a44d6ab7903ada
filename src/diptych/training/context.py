"""What the parts of a training share: the training as a whole, and the stage that is being prepared."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from diptych.data.corpus import Corpus
from diptych.model import Model
from diptych.models.address import names_pair, run_folder
from diptych.progress import ProgressCallback
from diptych.ranks import Ranks
from diptych.training.distributed.agreement import Agreement
from diptych.training.engine.callbacks import Callbacks
from diptych.training.engine.events import Preparation
from diptych.training.engine.journal import Journal
from diptych.training.inputs.images import StageImages
from diptych.training.recipe import Recipe, Stage

OBJECTIVE_FILE = "objective.safetensors"  # beside the best weights: what a later stage continues with


@dataclass(frozen=True)
class TrainingContext:
    """What all stages of one training share."""

    recipe: Recipe
    corpus: Corpus
    digest: str  # of the corpus
    run: Path
    workers: int
    callbacks: Callbacks
    stores: Path  # the folder that holds feature stores
    agreement: Agreement

    @property
    def ranks(self) -> Ranks:
        """The processes that train together."""
        return self.agreement.ranks

    @property
    def interrupted(self) -> threading.Event:
        """Set when training is to stop after the present step."""
        return self.agreement.interrupted

    def stop_if_interrupted(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, and all ranks know."""
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def progress(self, what: str) -> ProgressCallback:
        """A callback that reports the progress of a preparation and stops it on Ctrl-C."""
        return partial(self._report_progress, what)

    def _report_progress(self, what: str, done: int, total: int) -> None:
        self.callbacks.send(Preparation(what, done, total))
        if self.agreement.asked.is_set():
            raise KeyboardInterrupt


@dataclass(frozen=True)
class StageContext:
    """A stage that is being prepared: its number (from 1), its model, its training data and how images are read.

    `resumed` holds the tensors of the snapshot that the stage resumes from; it is None at the beginning of a stage.
    """

    training: TrainingContext
    number: int
    model: Model
    train: Corpus
    images: StageImages
    resumed: Mapping[str, Tensor] | None

    @property
    def stage(self) -> Stage:
        """The stage's part of the recipe."""
        return self.training.recipe.stage[self.number - 1]

    @property
    def journal(self) -> Journal:
        """The run's metrics.jsonl."""
        return Journal(self.training.run)

    @property
    def initial_weights(self) -> Path | None:
        """The weights that the stage starts from; None if it starts from scratch or from a pretrained pair."""
        if self.stage.start == "previous":
            return stage_file(self.training.run, self.number - 1)
        address = self.stage.start_address
        return None if address is None or names_pair(address) else best_file(run_folder(address))


def training_corpus(stage: Stage, corpus: Corpus) -> Corpus:
    """The part of a corpus that a stage trains on; mined lists number its images and texts."""
    return corpus.split(*stage.splits).matched()


def stage_file(run: Path, stage: int) -> Path:
    """Where a run keeps the best weights of a finished stage, from which the next stage may start."""
    return run / f"stage-{stage}" / "weights.safetensors"


def start_file(run: Path) -> Path:
    """Where a run keeps the weights that its present stage has started from, if the stage interpolates."""
    return run / "start" / "weights.safetensors"


def best_file(run: Path) -> Path:
    """Where a run keeps its best weights."""
    return run / "best" / "weights.safetensors"
