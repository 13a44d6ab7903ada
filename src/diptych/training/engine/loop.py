"""The training loop: knows stages, batches, callbacks and snapshots, and nothing of any paper."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from diptych.data.read_ahead import read_ahead
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.pairs import Pairs
from diptych.errors import CallbackError, RunError
from diptych.files import write_json
from diptych.models.storage import save_matcher
from diptych.objectives.objective import Loss
from diptych.training.context import StageContext, best_file
from diptych.training.distributed.reader import ShareReader
from diptych.training.engine.callbacks import StopTraining
from diptych.training.engine.checkpoint import Position, save_objective_state, save_snapshot, snapshot_path
from diptych.training.engine.choice import Choice, Metrics
from diptych.training.engine.events import Checkpoint, EpochEnd, Message, Skipped, StageStart, StepEnd
from diptych.training.engine.interpolation import interpolate_stage
from diptych.training.engine.optimiser import current_rate, set_rate
from diptych.training.engine.precision import SMALLEST_SCALE
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

    def __init__(self, prepared: PreparedStage, position: Position, finished_steps: int = 0) -> None:
        """`finished_steps` is the number of steps of all epochs before the position, over all stages."""
        self.context, self.step, self.data = prepared.context, prepared.step, prepared.data
        self.training, self.stage, self.model = self.context.training, self.context.stage, self.context.model
        self.position = position if self.step.resumes_within_epoch else _start_of_epoch(position)
        self.callbacks = self.training.callbacks
        self.sampler, self._reader = self.data.sampler, batch_reader(prepared)
        self._finished_steps = finished_steps
        self._score_range = math.nan  # of the last batch

    def run(self) -> None:
        """Train until the last epoch or until patience ends, then interpolate, if the stage says so.

        If training is interrupted or stopped, or a callback fails, the last complete step is saved before it ends.
        """
        steps, done = self.stage.epochs * len(self.sampler), max(0, self.position.epoch - 1) * len(self.sampler)
        try:
            self.callbacks.send(
                StageStart(
                    self.position.stage,
                    stages=len(self.training.recipe.stage),
                    steps=steps,
                    steps_per_epoch=len(self.sampler),
                    steps_done=done + self.position.step,
                    objective=self.stage.objective,
                    select=self.stage.select,
                    chance=self.data.chance.get(self.stage.select),
                )
            )
            self.training.agreement.check()
            if self.position.epoch == 0:
                self._measure_start()
                self.training.agreement.check()
            while self._has_epochs_left:
                self._train_epoch()
            if not self.position.stage_done:
                self._interpolate()
        except StopTraining:
            self.save_snapshot()
            raise
        except CallbackError:
            self.write_snapshot()
            raise

    def _measure_start(self) -> None:
        """Validate what the stage starts from as epoch 0, a candidate for the best snapshot."""
        started = time.monotonic()
        metrics = self._validate()
        epoch = self._epoch_end(metrics, self._keep_if_best(metrics), time.monotonic() - started)
        self.position = self.position.next_epoch()
        self.callbacks.send(epoch)
        self.save_snapshot()

    def _train_epoch(self) -> None:
        train_mode(self.model.matcher)
        batches = self.sampler.epoch(self.position.epoch)[self.position.step :]
        started = last_snapshot = time.monotonic()
        pairs_before = self.position.pairs
        for read in read_ahead(self._reader.read, batches, self.training.workers):
            batch = self._reader.settle(read)
            terms = self._train_step(batch)
            now = time.monotonic()
            pairs_per_second = (self.position.pairs - pairs_before) / max(now - started, 1e-9)
            self._report_step(batch, terms, pairs_per_second)
            self._stop_if_interrupted()
            if now - last_snapshot > SECONDS_BETWEEN_SNAPSHOTS:
                self.save_snapshot()
                last_snapshot = now
        self.training.agreement.check()
        self._finish_epoch(time.monotonic() - started)
        self.training.agreement.check()
        self._stop_if_interrupted()

    def _train_step(self, batch: PairBatch) -> dict[str, float]:
        """Train on a batch, count the step, and return the loss terms per pair."""
        # A batch whose images are all unreadable trains nothing.
        terms = self._train_on(batch) if len(batch) else {}
        self.position = replace(self.position, step=self.position.step + 1, pairs=self.position.pairs + len(batch))
        return terms

    def _train_on(self, batch: PairBatch) -> dict[str, float]:
        """Train on a batch, add its loss to the epoch's sums, and return the loss terms per pair."""
        set_rate(self.step.optimiser, self._rate())
        loss, summary = self.step(batch)
        self._score_range = summary.highest - summary.lowest
        values = {name: float(term.detach()) for name, term in (loss.terms | loss.model_terms).items()}
        self._check_finite(sum(values.values()))
        weights = {name: _weight_in_sum(loss, name, len(batch)) for name in values}
        sums, errors = dict(self.position.sums), dict(self.position.errors)
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value * weights[name]
        for name, rate in loss.error_rates.items():
            errors[name] = errors.get(name, 0.0) + float(rate) * len(batch)
        looks_collapsed = self.stage.objective.has_collapsed(summary, sum(values[name] for name in loss.terms))
        stuck = self.position.stuck + 1 if looks_collapsed else 0
        overflows = self.position.overflows + self.step.scaler.has_overflowed
        self.position = replace(self.position, sums=sums, errors=errors, stuck=stuck, overflows=overflows)
        return {name: value * weights[name] / len(batch) for name, value in values.items()}

    def _report_step(self, batch: PairBatch, terms: Mapping[str, float], pairs_per_second: float) -> None:
        # After the step is counted: a run that resumes from an earlier snapshot drops later lines of the journal and
        # trains this step again, so each line is written once.
        position = self.position
        self.callbacks.send(
            StepEnd(
                position.stage,
                position.epoch,
                position.step,
                training_step=self._training_step,
                terms=terms,
                mean_loss=self._mean_loss(),
                rate=current_rate(self.step.optimiser),
                pairs=len(batch),
                pairs_per_second=pairs_per_second,
                skipped=tuple(Skipped(*self.data.why_skipped(image)) for image in batch.skipped),
                collapsed_steps=position.stuck,
            )
        )

    @property
    def _training_step(self) -> int:
        """The number of steps so far, over all stages."""
        return self._finished_steps + self.position.step

    def _rate(self) -> float:
        """The learning rate of the next step."""
        epochs_done = self.position.epoch - 1 + self.position.step / len(self.sampler)
        return self.stage.optimiser.rate * self.stage.schedule.share(epochs_done, self.stage.epochs)

    def _check_finite(self, total: float) -> None:
        if math.isfinite(total) and self.step.scaler.value >= SMALLEST_SCALE:
            return
        position = self.position
        where = f"stage {position.stage}, epoch {position.epoch}, step {position.step + 1}"
        found = "the gradients overflow at any scale" if math.isfinite(total) else f"the loss is {total}"
        remedy = f"lower optimiser.rate, which is {self._rate():g}"
        if self.stage.precision == "float16":
            remedy += ", or set precision = 'bfloat16', which has the range of float32"
        raise RunError(f"{where}: {found}; {remedy}")

    def _finish_epoch(self, seconds: float) -> None:
        """Validate, keep the best, write the epoch's line, and move to the start of the next epoch."""
        choice = self.step.finish_epoch(self.stage.select, self._validate)
        metrics = self._validate() if choice is None else choice.metrics
        epoch = self._epoch_end(metrics, self._keep_if_best(metrics, choice), seconds, choice)
        position = self.position
        self._finished_steps += position.step
        self.position = position.next_epoch()
        is_last = not self._has_epochs_left
        self.position = replace(self.position, stage_done=is_last and self.stage.interpolate is None)
        self.callbacks.send(epoch)  # if a callback fails, the epoch has been finished nevertheless
        if choice is not None and len(choice.measured) > 1:
            self.callbacks.message(f"{choice.setting}: {choice}")
        if self._is_out_of_patience:
            message = f"no better {self.stage.select} on val for {self.stage.patience} epochs: stopped early"
            self.callbacks.message(message)
        if is_last and self.stage.first_epoch == position.best_epoch == 0:
            message = f"no epoch had a better {self.stage.select} on val than the start, which is kept as the best"
            self.callbacks.message(message, "yellow")
        self.save_snapshot()

    @property
    def _has_epochs_left(self) -> bool:
        """Whether the epoch that the position is at is to be trained."""
        return self.position.epoch <= self.stage.epochs and not self._is_out_of_patience

    @property
    def _is_out_of_patience(self) -> bool:
        """Whether the last epochs were no better, as many as patience allows."""
        finished, patience = self.position.epoch - 1, self.stage.patience
        return patience is not None and finished - self.position.best_epoch >= patience

    def _interpolate(self) -> None:
        """Make the best interpolation between the start and the best snapshot the best snapshot."""
        place = _place(self.position)
        found = interpolate_stage(self.context, self.data)
        best = self.position.best if found is None else found.metrics[found.select]
        self.position = replace(self.position.next_epoch(), best=best, stage_done=True)
        if found is None:
            self.callbacks.message("the best snapshot is what the stage started from: nothing to interpolate")
        else:
            message = f"interpolated from the start (0) to the best epoch (1): {found}"
            record = {**place, "event": "interpolation", **found.to_json(), "message": message}
            self.callbacks.send(Message(message, record=record))
        self.save_snapshot()

    def _keep_if_best(self, metrics: Metrics, choice: Choice | None = None) -> bool:
        """Save the weights as the best if they are, and return whether they are."""
        score = metrics[self.stage.select]
        is_best = self.position.best is None or score > self.position.best
        if is_best:
            self._save_best(metrics, choice)
            self.position = replace(self.position, best=score, best_epoch=self.position.epoch)
        return is_best

    def _validate(self) -> Metrics:
        self.model.matcher.eval()
        return self.data.validate(lambda _done, _total: self._stop_if_interrupted())

    def _epoch_end(self, metrics: Metrics, is_best: bool, seconds: float, choice: Choice | None = None) -> EpochEnd:
        position, pairs = self.position, max(1, self.position.pairs)
        learned = {name: float(one.detach()) for name, one in self.step.parameters.items() if one.numel() == 1}
        for need in self.step.needs:
            learned |= need.reported()
        return EpochEnd(
            position.stage,
            position.epoch,
            epochs=self.stage.epochs,
            step=position.step,
            training_step=self._training_step,
            metrics=metrics,
            summary=self.data.describe(metrics),
            loss=self._mean_loss() if position.epoch else math.nan,
            terms={name: value / pairs for name, value in position.sums.items()},
            rate=current_rate(self.step.optimiser) if position.epoch else 0.0,
            learned=learned,
            class_error={name: 100 * wrong / pairs for name, wrong in position.errors.items()},
            is_best=is_best,
            seconds=seconds,
            precision=self.stage.precision,
            skipped_steps=position.overflows,
            collapsed_steps=position.stuck,
            score_range=self._score_range,
            choice=choice,
        )

    def _save_best(self, metrics: Metrics, choice: Choice | None) -> None:
        if not self.training.ranks.is_first:
            return
        weights = best_file(self.training.run)
        about: dict[str, Any] = {**_place(self.position), "val": metrics}
        if choice is not None:
            about["choice"] = choice.to_json()
        save_matcher(weights, self.model.matcher, self.model.tokeniser, about)
        save_objective_state(weights, self.step)
        write_json(weights.with_name("metrics.json"), about)

    def save_snapshot(self) -> None:
        """Save everything that the next step depends on, and tell the callbacks."""
        self.write_snapshot()
        position, path = self.position, snapshot_path(self.training.run)
        self.callbacks.send(Checkpoint(path, position.stage, position.epoch, position.step, self._training_step))

    def write_snapshot(self) -> None:
        """Save everything that the next step depends on; the first rank does it for all."""
        if self.training.ranks.is_first:
            save_snapshot(self.training.run, self.model.tokeniser, self.step, self.position, self.training.digest)

    def _stop_if_interrupted(self) -> None:
        if self.training.interrupted.is_set():
            self.save_snapshot()
        self.training.stop_if_interrupted()

    def _mean_loss(self) -> float:
        """The epoch's loss per pair so far."""
        return sum(self.position.sums.values()) / max(1, self.position.pairs)


class BatchReader(Protocol):
    """Reads batches ahead, in threads; `settle` completes each of them, in order."""

    def read(self, pairs: Pairs) -> Any:
        """Read what belongs to a batch; safe to call from several threads."""
        ...

    def settle(self, read: Any) -> PairBatch:
        """The batch."""
        ...


def batch_reader(prepared: PreparedStage) -> BatchReader:
    """What reads batches: all of each, or this rank's share. Sums of a closed form are computed by every rank."""
    reader, agreement = prepared.data.reader, prepared.context.training.agreement
    matcher = prepared.context.model.matcher
    if agreement.ranks.count == 1 or matcher.solves_in_closed_form:
        return reader
    return ShareReader(reader, agreement, together=bool(matcher.extra_terms))


def _place(position: Position) -> dict[str, int]:
    return {"stage": position.stage, "epoch": position.epoch, "step": position.step}


def _start_of_epoch(position: Position) -> Position:
    return replace(position, step=0, pairs=0, sums={}, errors={}, overflows=0)


def _weight_in_sum(loss: Loss, term: str, pairs: int) -> int:
    """What turns a term into a sum over pairs: the number of pairs if the term is a mean, else 1."""
    return pairs if loss.is_mean or term in loss.model_terms else 1
