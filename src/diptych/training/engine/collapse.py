"""Detect a training that stays on the plateau of equal scores, or has collapsed to them.

Max of hinges lives near its value for equal scores for some epochs before it begins to learn, while recall on val
already rises. So at the end of an epoch whose last steps have all looked collapsed to the objective, recall decides:

    all scores of the last batch are equal                                   collapsed
    recall on val is that of a random order, for five times the patience     collapsed
    recall is that of a random order, or has not risen in the stage          a plateau
    recall has risen                                                         nothing
"""

from __future__ import annotations

from typing import Literal

from diptych.training.engine.callbacks import Callback
from diptych.training.engine.events import EpochEnd, Message, StageStart, TrainingStart

MIN_STEPS = 100
EQUAL = 1e-3  # the range of scores below which embeddings count as equal; a plateau that is left has a few hundredths
CHANCE = 1.5  # recall of up to this many times that of a random order is no better than it
PATIENCES = 5  # a plateau at chance is a collapse after this many times the patience

Verdict = Literal["plateau", "collapsed"]


class CollapseWatch(Callback):
    """Reports a plateau or a collapse with the objective's remedy, each of them once until training recovers."""

    def on_start(self, start: TrainingStart) -> None:
        """Remember how to send messages."""
        self._send = start.send

    def on_stage_start(self, stage: StageStart) -> None:
        """Set the patience, and forget the recall of the stage before."""
        self._stage, self._patience = stage, collapse_patience(stage.steps, stage.steps_per_epoch)
        self._best: float | None = None
        self._reported: set[Verdict] = set()

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """Report what the last steps and recall on val say, unless it has been reported."""
        recall, best = epoch.metrics[self._stage.select], self._best
        self._best = recall if best is None else max(best, recall)
        if epoch.collapsed_steps < self._patience:
            self._reported.clear()
            return
        verdict = self._verdict(epoch, recall, best)
        if verdict is None or verdict in self._reported:
            return
        self._reported |= {"plateau", verdict}  # after a collapse, a plateau is no news
        text = f"{verdict} for {epoch.collapsed_steps:,} steps now, {self._why(epoch, recall)}: {self._hint(verdict)}"
        place = {"stage": epoch.stage, "epoch": epoch.epoch, "step": epoch.step}
        style = "bold red" if verdict == "collapsed" else "yellow"
        self._send(Message(text, style, {**place, "event": verdict, "message": text}))

    def _verdict(self, epoch: EpochEnd, recall: float, best: float | None) -> Verdict | None:
        """What it is, by the table of the module."""
        if epoch.score_range <= EQUAL:
            return "collapsed"
        if self._is_chance(recall):
            return "collapsed" if epoch.collapsed_steps >= PATIENCES * self._patience else "plateau"
        return "plateau" if best is not None and recall <= best else None

    def _is_chance(self, recall: float) -> bool:
        return self._stage.chance is not None and recall <= CHANCE * self._stage.chance

    def _why(self, epoch: EpochEnd, recall: float) -> str:
        if epoch.score_range <= EQUAL:
            return "all scores are equal"
        if self._is_chance(recall):
            return f"and {self._stage.select} on val is {recall:.1f} where a random order has {self._stage.chance:.1f}"
        return f"and {self._stage.select} on val does not rise"

    def _hint(self, verdict: Verdict) -> str:
        hint = self._stage.objective.collapse_hint
        return hint if verdict == "collapsed" else f"{hint}; or wait, as some plateaus end after a few epochs"


def collapse_patience(steps: int, steps_per_epoch: int) -> int:
    """How many collapsed steps are no longer a warm-up: one epoch and at least 100, but a third of a short stage."""
    return max(1, min(max(MIN_STEPS, steps_per_epoch), steps // 3))
