"""The training loop: knows stages, batches, callbacks and snapshots, and nothing of any paper."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from diptych.data.read_ahead import read_ahead
from diptych.data.sampling.batch import PairBatch
from diptych.errors import RunError
from diptych.files import write_json
from diptych.models.storage import save_matcher
from diptych.objectives.objective import Loss
from diptych.training.context import StageContext, best_file
from diptych.training.engine.checkpoint import Position, save_objective_state, save_snapshot
from diptych.training.engine.collapse import CollapseDetector, collapse_patience
from diptych.training.engine.optimiser import current_rate, set_rate
from diptych.training.engine.step import Step
from diptych.training.engine.trainable import train_mode
from diptych.training.inputs.pairs import StageData

SECONDS_BETWEEN_SNAPSHOTS = 300.0


@dataclass(frozen=True)
class PreparedStage:
    """A stage that is ready to train."""

    context: StageContext
    step: Step
    data: StageData


class StageLoop:
    """Trains one stage from a position to its end, saving snapshots on the way."""

    def __init__(self, prepared: PreparedStage, position: Position) -> None:
        self.context, self.step, self.data = prepared.context, prepared.step, prepared.data
        self.training, self.stage, self.model = self.context.training, self.context.stage, self.context.model
        self.position = position if self.step.resumes_within_epoch else _start_of_epoch(position)
        self.journal = self.context.journal
        self.sampler = self.data.sampler
        self.total_steps = self.stage.epochs * len(self.sampler)
        patience = collapse_patience(self.total_steps, len(self.sampler))
        self.collapse = CollapseDetector(self.stage.objective, patience, position.stuck)
        self.reported_images = {
            line["image"]
            for line in self.journal.lines()
            if line["event"] == "skipped" and line["stage"] == position.stage
        }

    def run(self) -> None:
        """Train until the last epoch or until patience ends; on Ctrl-C, save the last complete step and stop."""
        done = max(0, self.position.epoch - 1) * len(self.sampler) + self.position.step
        self.training.callback.on_stage(self.position.stage, len(self.training.recipe.stage), self.total_steps, done)
        if self.position.epoch == 0:
            self._measure_start()
        while not self.position.stage_done:
            self._train_epoch()

    def _measure_start(self) -> None:
        """Validate what the stage starts from as epoch 0, a candidate for the best snapshot."""
        started = time.monotonic()
        metrics = self._validate()
        is_best = self._keep_if_best(metrics)
        self._report_epoch(metrics, is_best, time.monotonic() - started)
        self.position = self.position.next_epoch()
        self.save_snapshot()

    def _train_epoch(self) -> None:
        train_mode(self.model.matcher)
        batches = self.sampler.epoch(self.position.epoch)[self.position.step :]
        started = last_snapshot = time.monotonic()
        pairs_before = self.position.pairs
        for batch in read_ahead(self.data.read, batches, self.training.workers):
            self._train_step(batch)
            now = time.monotonic()
            pairs_per_second = (self.position.pairs - pairs_before) / max(now - started, 1e-9)
            self.training.callback.on_step(self.position.epoch, self._mean_loss(), pairs_per_second)
            self._stop_if_interrupted()
            if now - last_snapshot > SECONDS_BETWEEN_SNAPSHOTS:
                self.save_snapshot()
                last_snapshot = now
        self._finish_epoch(time.monotonic() - started)
        self._stop_if_interrupted()

    def _train_step(self, batch: PairBatch) -> None:
        has_collapsed = False
        if len(batch):  # a batch whose images are all unreadable trains nothing
            has_collapsed = self._train_on(batch)
        self.position = replace(
            self.position,
            step=self.position.step + 1,
            pairs=self.position.pairs + len(batch),
            stuck=self.collapse.steps,
        )
        # Reported after the step is counted: a run that resumes from an earlier snapshot drops later lines of the
        # journal and trains this step again, so each line is written once.
        self._report_skipped(batch.skipped)
        if has_collapsed:
            self._report_collapse()

    def _train_on(self, batch: PairBatch) -> bool:
        """Train on a batch, add its loss to the epoch's sums, and return whether training has now collapsed."""
        set_rate(self.step.optimiser, self._rate())
        loss, summary = self.step(batch)
        values = {name: float(term.detach()) for name, term in (loss.terms | loss.model_terms).items()}
        self._check_finite(sum(values.values()))
        sums, errors = dict(self.position.sums), dict(self.position.errors)
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value * _weight_in_sum(loss, name, len(batch))
        for name, rate in loss.error_rates.items():
            errors[name] = errors.get(name, 0.0) + float(rate) * len(batch)
        self.position = replace(self.position, sums=sums, errors=errors)
        return self.collapse.collapsed_now(sum(values[name] for name in loss.terms), summary)

    def _rate(self) -> float:
        """The learning rate of the next step."""
        epochs_done = self.position.epoch - 1 + self.position.step / len(self.sampler)
        return self.stage.optimiser.rate * self.stage.schedule.share(epochs_done, self.stage.epochs)

    def _check_finite(self, total: float) -> None:
        if not math.isfinite(total):
            position = self.position
            where = f"stage {position.stage}, epoch {position.epoch}, step {position.step + 1}"
            raise RunError(f"{where}: the loss is {total}; lower optimiser.rate, which is {self._rate():g}")

    def _finish_epoch(self, seconds: float) -> None:
        """Validate, keep the best, write the epoch's line, and move to the start of the next epoch."""
        self.step.finish_epoch()
        metrics = self._validate()
        is_best = self._keep_if_best(metrics)
        self._report_epoch(metrics, is_best, seconds)
        position, patience = self.position, self.stage.patience
        out_of_patience = patience is not None and position.epoch - position.best_epoch >= patience
        if out_of_patience:
            message = f"no better {self.stage.select} on val for {patience} epochs: stopped early"
            self.training.callback.message(message)
        is_done = out_of_patience or position.epoch == self.stage.epochs
        if is_done and self.stage.first_epoch == position.best_epoch == 0:
            message = f"no epoch had a better {self.stage.select} on val than the start, which is kept as the best"
            self.training.callback.message(message, "yellow")
        self.position = replace(position.next_epoch(), stage_done=is_done)
        self.save_snapshot()

    def _keep_if_best(self, metrics: dict[str, float]) -> bool:
        """Save the weights as the best if they are, and return whether they are."""
        score = metrics[self.stage.select]
        is_best = self.position.best is None or score > self.position.best
        if is_best:
            self._save_best(metrics)
            self.position = replace(self.position, best=score, best_epoch=self.position.epoch)
        return is_best

    def _validate(self) -> dict[str, float]:
        self.model.matcher.eval()
        return self.data.validate(lambda _done, _total: self._stop_if_interrupted())

    def _report_epoch(self, metrics: dict[str, float], is_best: bool, seconds: float) -> None:
        position = self.position
        self.journal.add(
            {
                **_place(position),
                "event": "epoch",
                **(self._trained() if position.epoch else {}),
                "val": metrics,
                "best": is_best,
                "seconds": round(seconds, 3),
            }
        )
        done = f"epoch {position.epoch}/{self.stage.epochs}"
        done += f"  loss {self._mean_loss():.4f}" if position.epoch else " (the start)"
        line = f"stage {position.stage}  {done}  val {self.data.describe(metrics)}"
        self.training.callback.message(line + ("  best" if is_best else ""), "bold" if is_best else "")

    def _trained(self) -> dict[str, Any]:
        """What an epoch's line says about its training."""
        position, pairs = self.position, max(1, self.position.pairs)
        parameters = {name: float(value.detach()) for name, value in self.step.parameters.items() if value.numel() == 1}
        errors = {name: 100 * wrong / pairs for name, wrong in position.errors.items()}
        return {
            "rate": current_rate(self.step.optimiser),
            "loss": self._mean_loss(),
            "terms": {name: value / pairs for name, value in position.sums.items()},
            **({"learned": parameters} if parameters else {}),
            **({"class_error": errors} if errors else {}),
        }

    def _save_best(self, metrics: dict[str, float]) -> None:
        weights = best_file(self.training.run)
        about = {**_place(self.position), "val": metrics}
        save_matcher(weights, self.model.matcher, self.model.vocabulary, about)
        save_objective_state(weights, self.step)
        write_json(weights.with_name("metrics.json"), about)

    def save_snapshot(self) -> None:
        """Save everything that the next step depends on."""
        save_snapshot(self.training.run, self.model.vocabulary, self.step, self.position, self.training.digest)

    def _stop_if_interrupted(self) -> None:
        if self.training.interrupted.is_set():
            self.save_snapshot()
        self.training.stop_if_interrupted()

    def _mean_loss(self) -> float:
        """The epoch's loss per pair so far."""
        return sum(self.position.sums.values()) / max(1, self.position.pairs)

    def _report_collapse(self) -> None:
        message = f"collapsed for {self.collapse.steps} steps now: {self.stage.objective.collapse_hint}"
        self.journal.add({**_place(self.position), "event": "collapsed", "message": message})
        self.training.callback.message(message, "bold red")

    def _report_skipped(self, images: tuple[int, ...]) -> None:
        """Name each unreadable training image once."""
        for image in images:
            name, reason = self.data.why_skipped(image)
            if name not in self.reported_images:
                self.reported_images.add(name)
                self.journal.add({**_place(self.position), "event": "skipped", "image": name, "message": reason})
                self.training.callback.message(f"skipped {reason}", "yellow")


def _place(position: Position) -> dict[str, Any]:
    return {"stage": position.stage, "epoch": position.epoch, "step": position.step}


def _start_of_epoch(position: Position) -> Position:
    return replace(position, step=0, pairs=0, sums={}, errors={})


def _weight_in_sum(loss: Loss, term: str, pairs: int) -> int:
    """What turns a term into a sum over pairs: the number of pairs if the term is a mean, else 1."""
    return pairs if loss.is_mean or term in loss.model_terms else 1
