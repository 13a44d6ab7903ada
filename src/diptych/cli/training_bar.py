"""The progress bar of a training on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from diptych.training.engine.callbacks import Callback
from diptych.training.engine.events import (
    EpochEnd,
    Message,
    Preparation,
    StageStart,
    StepEnd,
    TrainingEnd,
    TrainingStart,
)


class TrainingBar(Callback):
    """Shows messages, one line per epoch, and a bar with loss, pairs per second and the time left."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_start(self, start: TrainingStart) -> None:
        """Begin the display."""
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,  # a file gets messages only, no bar
        )
        self._progress.start()
        self._preparation: TaskID | None = None

    def on_end(self, end: TrainingEnd) -> None:
        """Leave the display as it is."""
        self._progress.stop()

    def on_stage_start(self, stage: StageStart) -> None:
        """Start a bar for the stage."""
        title = f"stage {stage.stage}/{stage.stages}"
        self._stage = self._progress.add_task(title, total=stage.steps, completed=stage.steps_done, figures="")

    def on_step(self, step: StepEnd) -> None:
        """Advance the bar."""
        figures = f"epoch {step.epoch}  loss {step.mean_loss:.4f}  {step.pairs_per_second:,.0f} pairs/s"
        self._progress.update(self._stage, advance=1, figures=figures)

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """Print the epoch's line."""
        trained = f" loss {epoch.loss:.4f}" if epoch.epoch else "(the start)"
        line = f"stage {epoch.stage}  epoch {epoch.epoch}/{epoch.epochs} {trained}  val {epoch.summary}"
        if epoch.skipped_steps:
            line += f"  {epoch.skipped_steps} of {epoch.step} steps skipped (overflow in {epoch.precision})"
        self._print(line + ("  best" if epoch.is_best else ""), "bold" if epoch.is_best else "")

    def on_preparation(self, preparation: Preparation) -> None:
        """Show a separate bar until the preparation is complete."""
        what, done, total = preparation.what, preparation.done, preparation.total
        if self._preparation is None:
            if done == total:  # the end may be reported twice
                return
            self._preparation = self._progress.add_task(what, total=total, figures="")
            if not self.console.is_terminal:
                self._print(f"{what}: {total:,} to do")
        self._progress.update(self._preparation, completed=done, total=total)
        if done == total:
            self._progress.remove_task(self._preparation)
            self._preparation = None

    def on_message(self, message: Message) -> None:
        """Print the message above the bar."""
        self._print(message.text, message.style)

    def _print(self, text: str, style: str = "") -> None:
        """Print above the bar, without markup: file names may contain anything."""
        self._progress.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
