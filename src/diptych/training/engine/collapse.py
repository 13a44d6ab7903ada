"""Detect a training that has collapsed, for instance to equal embeddings for everything."""

from __future__ import annotations

from diptych.objectives.objective import Objective, ScoreSummary

MIN_STEPS = 100


class CollapseDetector:
    """Counts consecutive steps that look collapsed to the objective."""

    def __init__(self, objective: Objective, patience: int, steps: int = 0) -> None:
        self._objective, self._patience = objective, patience
        self.steps = steps

    def collapsed_now(self, total: float, batch: ScoreSummary) -> bool:
        """Whether this step is the one that uses up the patience; true once per collapse."""
        self.steps = self.steps + 1 if self._objective.has_collapsed(batch, total) else 0
        return self.steps == self._patience


def collapse_patience(steps: int, steps_per_epoch: int) -> int:
    """How many collapsed steps are no longer a warm-up: one epoch and at least 100, but a third of a short stage."""
    return max(1, min(max(MIN_STEPS, steps_per_epoch), steps // 3))
