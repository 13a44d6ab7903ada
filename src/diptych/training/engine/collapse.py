"""Detect a training that has collapsed, for instance to equal embeddings for everything."""

from __future__ import annotations

from diptych.training.engine.callbacks import Callback
from diptych.training.engine.events import Message, StageStart, StepEnd, TrainingStart

MIN_STEPS = 100


class CollapseWatch(Callback):
    """Reports a collapse with the objective's remedy, once enough steps in a row have looked collapsed."""

    def on_start(self, start: TrainingStart) -> None:
        """Remember how to send messages."""
        self._send = start.send

    def on_stage_start(self, stage: StageStart) -> None:
        """Set the patience, and the remedy of the stage's objective."""
        self._patience = collapse_patience(stage.steps, stage.steps_per_epoch)
        self._hint = stage.objective.collapse_hint

    def on_step(self, step: StepEnd) -> None:
        """Report the step that uses up the patience; a longer collapse is not reported again."""
        if step.collapsed_steps == self._patience and step.terms:
            text = f"collapsed for {step.collapsed_steps} steps now: {self._hint}"
            place = {"stage": step.stage, "epoch": step.epoch, "step": step.step}
            self._send(Message(text, "bold red", {**place, "event": "collapsed", "message": text}))


def collapse_patience(steps: int, steps_per_epoch: int) -> int:
    """How many collapsed steps are no longer a warm-up: one epoch and at least 100, but a third of a short stage."""
    return max(1, min(max(MIN_STEPS, steps_per_epoch), steps // 3))
