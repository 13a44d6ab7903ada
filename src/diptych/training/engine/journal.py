"""metrics.jsonl: one line per epoch and per event, in chronological order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from diptych.errors import RunError
from diptych.files import write_text
from diptych.training.engine.callbacks import Callback
from diptych.training.engine.events import EpochEnd, Message, StageStart, StepEnd, TrainingStart


class Journal(Callback):
    """A run's metrics.jsonl: reads it, and writes it during training."""

    def __init__(self, run: Path) -> None:
        self.path = run / "metrics.jsonl"

    def on_start(self, start: TrainingStart) -> None:
        """Remember how to send messages."""
        self._send = start.send

    def on_stage_start(self, stage: StageStart) -> None:
        """Find out which images were reported before the stage was interrupted."""
        lines = (line for line in self.lines() if line["event"] == "skipped" and line["stage"] == stage.stage)
        self._reported_images = {line["image"] for line in lines}

    def on_step(self, step: StepEnd) -> None:
        """Name each unreadable training image once per stage."""
        for skipped in step.skipped:
            if skipped.image not in self._reported_images:
                self._reported_images.add(skipped.image)
                record = {"event": "skipped", "image": skipped.image, "message": skipped.reason}
                self._send(Message(f"skipped {skipped.reason}", "yellow", {**_place(step), **record}))

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """Write the epoch's line."""
        self.add(
            {
                **_place(epoch),
                "event": "epoch",
                **(_trained(epoch) if epoch.epoch else {}),
                "val": epoch.metrics,
                **({"choice": epoch.choice.to_json()} if epoch.choice is not None else {}),
                "best": epoch.is_best,
                "seconds": round(epoch.seconds, 3),
            }
        )

    def on_message(self, message: Message) -> None:
        """Write the message's record, if it has one."""
        if message.record is not None:
            self.add(dict(message.record))

    def add(self, line: dict[str, Any]) -> None:
        """Append one line; it is complete on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """All lines; an incomplete last line, left by a killed run, is ignored."""
        if not self.path.is_file():
            return []
        rows = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = []
        for number, row in enumerate(rows, 1):
            try:
                line = json.loads(row)
                _ = line["event"], (line["stage"], line["epoch"], line["step"]) < (0, 0, 0)
                lines.append(line)
            except (ValueError, TypeError, KeyError):
                if number < len(rows):
                    raise RunError(f"{self.path}:{number}: not a line that training writes; restore the file") from None
        return lines

    def rewind(self, stage: int, epoch: int, step: int) -> None:
        """Drop the lines that were written after the snapshot that training resumes from."""
        kept = [line for line in self.lines() if (line["stage"], line["epoch"], line["step"]) <= (stage, epoch, step)]
        # A snapshot of a finished epoch is at the start of the next one, and so is that after an interpolation.
        at_end = ("epoch", "interpolation")
        kept = [line for line in kept if line["event"] not in at_end or (line["stage"], line["epoch"]) < (stage, epoch)]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def finished_steps(self) -> int:
        """The number of steps of all finished epochs, over all stages."""
        return sum(line["step"] for line in self.lines() if line["event"] == "epoch")


def _place(event: StepEnd | EpochEnd) -> dict[str, int]:
    return {"stage": event.stage, "epoch": event.epoch, "step": event.step}


def _trained(epoch: EpochEnd) -> dict[str, Any]:
    """What an epoch's line says about its training."""
    return {
        "rate": epoch.rate,
        "loss": epoch.loss,
        "terms": epoch.terms,
        **({"precision": epoch.precision} if epoch.precision != "float32" else {}),
        **({"skipped_steps": epoch.skipped_steps} if epoch.skipped_steps else {}),
        **({"learned": epoch.learned} if epoch.learned else {}),
        **({"class_error": epoch.class_error} if epoch.class_error else {}),
    }
