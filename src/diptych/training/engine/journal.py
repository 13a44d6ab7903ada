"""metrics.jsonl: one line per epoch and per event, in chronological order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from diptych.errors import RunError
from diptych.files import write_text


class Journal:
    """Appends lines to a run's metrics.jsonl."""

    def __init__(self, run: Path) -> None:
        self.path = run / "metrics.jsonl"

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
        position = stage, epoch, step
        kept = [line for line in self.lines() if _place(line) < position or _is_at(line, position)]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))


def _place(line: dict[str, Any]) -> tuple[int, int, int]:
    return line["stage"], line["epoch"], line["step"]


def _is_at(line: dict[str, Any], position: tuple[int, int, int]) -> bool:
    """Whether a line was written at a position; an epoch's line ends the epoch and belongs to what follows."""
    return _place(line) == position and line["event"] != "epoch"
