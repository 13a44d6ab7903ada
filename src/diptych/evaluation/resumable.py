"""Passes over scores that can be interrupted: their states are kept in a file beside the result, to continue from."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from diptych.errors import RankError, RunError
from diptych.machine import interrupt_event
from diptych.models.storage import load_tensors, save_tensors
from diptych.ranks import ALONE, Ranks

SECONDS_BETWEEN_SAVES = 60.0


class ScoresPass(Protocol):
    """A pass over scores, tile by tile, that can stop after any tile and continue later."""

    done: int  # finished tiles

    @property
    def shape(self) -> list[int]:
        """What tells passes over other tiles apart."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What the finished tiles have left."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        ...

    def remaining(self) -> Generator[int, None, None]:
        """Process the remaining tiles; yields how far it is after each."""
        ...


class ResumablePasses:
    """Runs passes one after the other and saves their states; without a file, it only runs them.

    Saved states are continued only if `identity` is the same. Each rank saves its own.
    """

    def __init__(self, file: Path | None = None, identity: dict[str, Any] | None = None, ranks: Ranks = ALONE) -> None:
        suffix = "partial" if ranks.count == 1 else f"partial-{ranks.rank}-of-{ranks.count}"
        self.path = None if file is None else file.with_name(f"{file.name}.{suffix}")
        self._identity, self._ranks = identity or {}, ranks
        self._finished: list[ScoresPass] = []
        self._saved_at = time.monotonic()

    def run(self, scores_pass: ScoresPass, report: Callable[[int], None]) -> None:
        """Process all remaining tiles of the next pass; on Ctrl-C, or if `report` raises, the state is saved first."""
        self._restore(scores_pass)
        with interrupt_event() as stopped, closing(scores_pass.remaining()) as remaining:
            while True:
                try:
                    if (reached := next(remaining, None)) is None:
                        break
                except RankError:  # between two tiles, whatever became of the other rank
                    self.save(scores_pass)
                    raise
                try:
                    report(reached)
                    if stopped.is_set():
                        raise KeyboardInterrupt
                except BaseException:
                    self.save(scores_pass)
                    raise
                if time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES:
                    self.save(scores_pass)
        if self._ranks.count > 1:
            self.save(scores_pass)  # the others may take longer, and may be interrupted
        self._finished.append(scores_pass)

    def save(self, scores_pass: ScoresPass) -> None:
        """Save the states of the finished passes and of this one."""
        if self.path is not None:
            passes = [*self._finished, scores_pass]
            tensors = {
                f"{number}.{name}": rows for number, each in enumerate(passes) for name, rows in each.state().items()
            }
            positions = [{"tiles": each.shape, "done": each.done} for each in passes]
            save_tensors(self.path, tensors, {**self._identity, "passes": positions})
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Remove the saved states, once the result is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _restore(self, scores_pass: ScoresPass) -> None:
        """Continue from the saved state if it is intact and of this pass, else start from the beginning."""
        if self.path is None:
            return
        try:
            tensors, header = load_tensors(self.path)
        except RunError:
            return
        number, saved = len(self._finished), header.pop("passes", [])
        if header != self._identity or number >= len(saved) or saved[number]["tiles"] != scores_pass.shape:
            return
        prefix = f"{number}."
        of_pass = {name.removeprefix(prefix): rows for name, rows in tensors.items() if name.startswith(prefix)}
        scores_pass.restore(of_pass)
        scores_pass.done = saved[number]["done"]
