"""The training loop: knows stages, batches and snapshots, and nothing of any paper."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from diptych.data.corpus import Corpus
from diptych.data.sampling.offline import OfflineSampler
from diptych.data.sampling.pairs import PairBatch, read_ahead
from diptych.errors import RunError
from diptych.files import write_json
from diptych.model import Model
from diptych.models.storage import save_matcher
from diptych.objectives.correlation import Correlation
from diptych.progress import ProgressCallback
from diptych.training.engine.callbacks import Watcher
from diptych.training.engine.checkpoint import Position, Snapshot, save_snapshot
from diptych.training.engine.journal import Journal
from diptych.training.engine.stage import CollapseWatch, prepare_step, set_rate, set_trainable, train_mode
from diptych.training.engine.step import Step
from diptych.training.inputs.classes import Classes, stage_classes
from diptych.training.inputs.classifier import KeptClassifier, keep_classifier
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.offline import stage_lists, training_corpus
from diptych.training.inputs.pairs import ImageTextData, StageData, StageTexts
from diptych.training.inputs.phrases import PhraseData
from diptych.training.recipe import Recipe
from diptych.training.start import best_file, stage_file

SECONDS_BETWEEN_SNAPSHOTS = 300.0
STUCK_STEPS = 100


@dataclass(frozen=True)
class TrainingContext:
    """What all stages of one training share."""

    recipe: Recipe
    corpus: Corpus
    digest: str  # of the corpus
    run: Path
    workers: int
    watcher: Watcher
    stores: Path  # the folder that holds feature stores
    interrupted: threading.Event

    def stop_if_interrupted(self) -> None:
        """End here with KeyboardInterrupt if Ctrl-C was pressed."""
        if self.interrupted.is_set():
            raise KeyboardInterrupt


class StageLoop:
    """Trains one stage from a position to its end, leaving snapshots on the way."""

    def __init__(self, around: TrainingContext, model: Model, position: Position, snapshot: Snapshot | None) -> None:
        """Prepare a stage; with a snapshot its state is put back, without one the start is saved as the first."""
        self.around, self.model, self.position = around, model, position
        self.stage = around.recipe.stage[position.stage - 1]
        if isinstance(self.stage.objective, Correlation):  # what was taken in of an epoch is not kept, only its result
            self.position = replace(position, step=0, pairs=0, sums={})
        set_trainable(model.matcher, self.stage.trainable)
        self.journal = Journal(around.run)
        train = training_corpus(self.stage, around.corpus)
        if snapshot is None:
            self._say_unmatched(train)
        self.images = self._stage_images()
        self.step = self._prepared_step(train, snapshot)
        offline = self._offline_sampler(train)
        if snapshot is not None:  # after mining, which builds a matcher of its own and so draws random numbers
            snapshot.restore(self.step)
        self.data = self._stage_data(train, offline)
        self.sampler = self.data.sampler
        # An epoch's worth of steps in the trap, and never fewer than these, is no warm-up any more; nor is a third of
        # a short stage.
        self.steps = self.stage.epochs * len(self.sampler)
        patience = max(1, min(max(STUCK_STEPS, len(self.sampler)), self.steps // 3))
        self.watch = CollapseWatch(self.stage.objective, patience, position.stuck)
        told = (line for line in self.journal.lines() if line["event"] == "skipped" and line["stage"] == position.stage)
        self.told = {line["image"] for line in told}
        if snapshot is None:
            self._snapshot()

    def _stage_images(self) -> StageImages:
        """How the stage reads its images; call after its parts were made trainable."""
        around, progress = self.around, partial(self._prepare, "features")
        return StageImages(self.model, self.stage, around.stores, around.workers, progress, around.watcher.say)

    def _prepared_step(self, train: Corpus, snapshot: Snapshot | None) -> Step:
        """The steps of the stage; one that classifies goes on with the classifier of what it starts from."""
        if not self.stage.objective.needs_classes:
            return prepare_step(self.model.matcher, self.stage, self.model.device)
        if snapshot is not None:
            return prepare_step(self.model.matcher, self.stage, self.model.device, snapshot.classes)
        kept = self._kept_classifier(train)
        classes = self._stage_classes(train) if kept is None else kept.classes
        step = prepare_step(self.model.matcher, self.stage, self.model.device, classes)
        if kept is not None:
            kept.put_into(step.all_learned)
        told = "fresh" if kept is None else f"that of {kept.path.parent}"
        self.around.watcher.say(f"{self.stage.objective.name}: {classes.count:,} classes; the classifier is {told}")
        return step

    def _stage_classes(self, train: Corpus) -> Classes:
        reader, progress = partial(self.images.for_encoding, train), partial(self._prepare, "clusters")
        return stage_classes(self.stage.objective, train, reader, self.around.recipe.seed, progress)

    def _kept_classifier(self, train: Corpus) -> KeptClassifier | None:
        """The classifier of what the stage starts from, if it told the same groups apart."""
        start = self.stage.start
        if start == "scratch":
            return None
        before = stage_file(self.around.run, self.position.stage - 1)
        weights = before if start == "previous" else best_file(Path(start))
        kept = KeptClassifier.beside(weights)
        return kept if kept is not None and kept.fits(self.stage.objective, train, self.model.matcher) else None

    def _say_unmatched(self, train: Corpus) -> None:
        """Tell what the splits hold that cannot be trained on: a group without an image, or without a text."""
        before = self.around.recipe.stage[: self.position.stage - 1]
        every = self.around.corpus.split(*self.stage.splits)
        images, texts = len(every.image_ids) - len(train.image_ids), len(every.texts) - len(train.texts)
        if (images or texts) and all(stage.splits != self.stage.splits for stage in before):
            self.around.watcher.say(
                f"left out of training, for the lack of the other side in their groups: images {images:,}, texts "
                f"{texts:,}; `diptych data check` names them",
                "yellow",
            )

    def _stage_data(self, train: Corpus, offline: OfflineSampler | None) -> StageData:
        """What the stage trains on and is measured on."""
        around, images = self.around, self.images
        texts = StageTexts(self.model, around.stores, self._prepare, around.watcher.say)
        seed = (around.recipe.seed, self.position.stage)
        if self.stage.phrases is not None:
            return PhraseData(around.corpus, train, self.stage, seed, images, texts)
        return ImageTextData(around.corpus, train, self.stage, seed, images, texts, offline)

    def _offline_sampler(self, train: Corpus) -> OfflineSampler | None:
        """What draws offline negatives, where the stage has some; mines first if nobody has."""
        if self.stage.offline is None:
            return None
        before = self.stage.offline.stage(self.position.stage)
        weights = None if before is None else stage_file(self.around.run, before)
        progress = partial(self._prepare, "mining")
        lists = stage_lists(
            self.stage.offline, train, weights, self.model, self.around.stores, self.around.workers, progress
        )
        if lists.shortage:
            self.around.watcher.say(lists.shortage)
        self._remember_lists(self.stage.offline.lists, lists.header.weights)
        return OfflineSampler(train, lists.texts, lists.images, self.stage.offline)

    def _remember_lists(self, source: str, weights: str) -> None:
        """Write down who mined, once a stage; a run that goes on must draw from the same lists."""
        stage = self.position.stage
        told = [line for line in self.journal.lines() if line["event"] == "lists" and line["stage"] == stage]
        if not told:
            self.journal.add({"stage": stage, "epoch": 1, "step": 0, "event": "lists", "weights": weights})
        elif told[0]["weights"] != weights:
            raise RunError(
                f"{self.around.run}: stage {stage} began with lists of {source} that other weights had mined; restore "
                "those, or train --into another folder"
            )

    def run(self) -> None:
        """Train until the last epoch or until patience ends; once interrupted, save the last whole step and stop."""
        done = (self.position.epoch - 1) * len(self.sampler) + self.position.step
        self.around.watcher.stage(self.position.stage, len(self.around.recipe.stage), self.steps, done)
        while not self.position.stage_done:
            self._epoch()

    def _epoch(self) -> None:
        train_mode(self.model.matcher)
        batches = self.sampler.epoch(self.position.epoch)[self.position.step :]
        started = saved = time.monotonic()
        before = self.position.pairs
        for batch in read_ahead(self.data.read, batches, self.around.workers):
            self._step(batch)
            now = time.monotonic()
            speed = (self.position.pairs - before) / max(now - started, 1e-9)
            loss = sum(self.position.sums.values()) / max(1, self.position.pairs)
            self.around.watcher.step(self.position.epoch, loss, speed)
            self._stop_if_interrupted()
            if now - saved > SECONDS_BETWEEN_SNAPSHOTS:
                self._snapshot()
                saved = now
        self._finish_epoch(time.monotonic() - started)
        self._stop_if_interrupted()

    def _stop_if_interrupted(self) -> None:
        if self.around.interrupted.is_set():
            self._snapshot()
        self.around.stop_if_interrupted()

    def _prepare(self, what: str, done: int, total: int) -> None:
        self.around.watcher.preparing(what, done, total)
        self.around.stop_if_interrupted()

    def _rate(self) -> float:
        """The learning rate of the step to come."""
        done = self.position.epoch - 1 + self.position.step / len(self.sampler)
        return self.stage.optimiser.rate * self.stage.schedule.share(done, self.stage.epochs)

    def _step(self, batch: PairBatch) -> None:
        position = self.position
        sums, errors = dict(position.sums), dict(position.errors)
        collapsed = False
        rate = self._rate()
        if len(batch):  # a batch whose images are all unreadable trains nothing
            set_rate(self.step.optimiser, rate)
            loss, summary = self.step(batch)
            values = {name: float(term.detach()) for name, term in (loss.terms | loss.own).items()}
            if not math.isfinite(sum(values.values())):
                at = f"stage {position.stage}, epoch {position.epoch}, step {position.step + 1}"
                raise RunError(f"{at}: the loss is {sum(values.values())}; lower optimiser.rate, which is {rate:g}")
            for name, value in values.items():
                pairs = len(batch) if loss.averaged or name in loss.own else 1
                sums[name] = sums.get(name, 0.0) + value * pairs
            for name, share in loss.errors.items():
                errors[name] = errors.get(name, 0.0) + float(share) * len(batch)
            collapsed = self.watch.collapsed(sum(values[name] for name in loss.terms), summary)
        self.position = replace(
            position,
            step=position.step + 1,
            pairs=position.pairs + len(batch),
            sums=sums,
            errors=errors,
            stuck=self.watch.stuck,
        )
        # Only now: a run that goes on from before this step says it again, and its journal holds it once.
        self._tell(batch.skipped)
        if collapsed:
            self._say_collapsed()

    def _finish_epoch(self, seconds: float) -> None:
        """Validate, keep the best, write the epoch's line, and stand at the start of the next epoch."""
        self.step.finish_epoch()
        metrics = self._validate()
        position = self.position
        score = metrics[self.stage.select]
        better = position.best is None or score > position.best
        if better:
            self._keep_best(metrics)
            position = replace(position, best=score, best_epoch=position.epoch)
        pairs = max(1, position.pairs)
        group = self.step.optimiser.param_groups[0]
        self.journal.add(
            {
                **_at(position),
                "event": "epoch",
                "rate": group["lr"] / group["multiple"],
                "loss": sum(position.sums.values()) / pairs,
                "terms": {name: value / pairs for name, value in position.sums.items()},
                **self._learned(),
                "val": metrics,
                "best": better,
                "seconds": round(seconds, 3),
            }
        )
        self.around.watcher.say(_epoch_line(position, self.stage.epochs, metrics, better), "bold" if better else "")
        patience = self.stage.patience
        tired = patience is not None and position.epoch - position.best_epoch >= patience
        if tired:
            self.around.watcher.say(f"no better {self.stage.select} on val for {patience} epochs: stopped early")
        self.position = replace(position.next_epoch(), stage_done=tired or position.epoch == self.stage.epochs)
        self._snapshot()

    def _learned(self) -> dict[str, Any]:
        """The numbers that the objective has learned so far, and the shares that it took for another class."""
        numbers = {name: float(value.detach()) for name, value in self.step.learned.items() if value.numel() == 1}
        pairs = max(1, self.position.pairs)
        errors = {name: 100 * wrong / pairs for name, wrong in self.position.errors.items()}
        return ({"learned": numbers} if numbers else {}) | ({"class_error": errors} if errors else {})

    def _validate(self) -> dict[str, float]:
        self.model.matcher.eval()
        progress: ProgressCallback = lambda _done, _total: self._stop_if_interrupted()  # noqa: E731
        return self.data.validate(progress)

    def _keep_best(self, metrics: dict[str, float]) -> None:
        folder = self.around.run / "best"
        about = {**_at(self.position), "val": metrics}
        weights = folder / "weights.safetensors"
        save_matcher(weights, self.model.matcher, self.model.vocabulary, about)
        keep_classifier(weights, self.step.all_learned, self.step.classes)
        write_json(folder / "metrics.json", about)

    def _snapshot(self) -> None:
        save_snapshot(self.around.run, self.model.vocabulary, self.step, self.position, self.around.digest)

    def _say_collapsed(self) -> None:
        message = f"collapsed, for {self.watch.stuck} steps now: {self.stage.objective.collapse_hint}"
        self.journal.add({**_at(self.position), "event": "collapsed", "message": message})
        self.around.watcher.say(message, "bold red")

    def _tell(self, skipped: tuple[int, ...]) -> None:
        """Name each unreadable training image once."""
        for image in skipped:
            name, reason = self.data.why_skipped(image)
            if name not in self.told:
                self.told.add(name)
                self.journal.add({**_at(self.position), "event": "skipped", "image": name, "message": reason})
                self.around.watcher.say(f"skipped {reason}", "yellow")


def _at(position: Position) -> dict[str, Any]:
    return {"stage": position.stage, "epoch": position.epoch, "step": position.step}


def _epoch_line(position: Position, epochs: int, metrics: dict[str, float], better: bool) -> str:
    loss = sum(position.sums.values()) / max(1, position.pairs)
    return f"stage {position.stage}  epoch {position.epoch}/{epochs}  loss {loss:.4f}  val {_told(metrics)}" + (
        "  best" if better else ""
    )


def _told(metrics: dict[str, float]) -> str:
    """What a line says of an epoch's measures."""
    if "rsum" in metrics:
        return f"rsum {metrics['rsum']:.1f}  R@1 {metrics['i2t_r1']:.1f} / {metrics['t2i_r1']:.1f}"
    return f"phrases R@1 {metrics['phrase_r1']:.1f}  R@5 {metrics['phrase_r5']:.1f}  R@10 {metrics['phrase_r10']:.1f}"
