"""Who is told about the progress of a training."""

from __future__ import annotations

from typing import Protocol


class TrainingCallback(Protocol):
    """Receives the steps, preparations and messages of a training."""

    def on_stage(self, number: int, stages: int, steps: int, done: int) -> None:
        """A stage begins, with `done` of its steps already trained."""
        ...

    def on_step(self, epoch: int, loss: float, pairs_per_second: float) -> None:
        """A step has finished; the loss is the epoch's mean per pair so far."""
        ...

    def on_preparation(self, what: str, done: int, total: int) -> None:
        """Progress of something that a stage needs first, such as features or mined lists."""
        ...

    def message(self, text: str, style: str = "") -> None:
        """Something that the user should read; `style` is a rich style."""
        ...


class NoCallback:
    """Ignores everything."""

    def on_stage(self, number: int, stages: int, steps: int, done: int) -> None:
        """Do nothing."""

    def on_step(self, epoch: int, loss: float, pairs_per_second: float) -> None:
        """Do nothing."""

    def on_preparation(self, what: str, done: int, total: int) -> None:
        """Do nothing."""

    def message(self, text: str, style: str = "") -> None:
        """Do nothing."""
