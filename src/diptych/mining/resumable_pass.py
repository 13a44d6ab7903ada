"""A pass over scores that can be interrupted: its state is kept in a file beside the result, to continue from."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from diptych.errors import RunError
from diptych.machine import interrupt_event
from diptych.mining.score_pass import ScorePass
from diptych.models.storage import load_tensors, save_tensors
from diptych.ranks import ALONE, Ranks

SECONDS_BETWEEN_SAVES = 60.0


class ResumablePass:
    """Runs a pass and saves its state; a saved state is continued only if `identity` is the same."""

    def __init__(self, file: Path, identity: dict[str, Any], ranks: Ranks = ALONE) -> None:
        suffix = "partial" if ranks.count == 1 else f"partial-{ranks.rank}-of-{ranks.count}"
        self.path = file.with_name(f"{file.name}.{suffix}")
        self._identity = identity

    def run(self, score_pass: ScorePass, report: Callable[[int], None]) -> None:
        """Process all remaining tiles; on Ctrl-C, or if `report` raises, the state is saved first.

        `report` receives the number of texts compared so far.
        """
        self._restore(score_pass)
        saved = time.monotonic()
        with interrupt_event() as stopped, closing(score_pass.remaining()) as remaining:
            for texts in remaining:
                try:
                    report(texts)
                    if stopped.is_set():
                        raise KeyboardInterrupt
                except BaseException:
                    self.save(score_pass)
                    raise
                if time.monotonic() - saved >= SECONDS_BETWEEN_SAVES:
                    self.save(score_pass)
                    saved = time.monotonic()

    def save(self, score_pass: ScorePass) -> None:
        """Save the state, from which the same pass can continue."""
        best = {"texts": score_pass.texts_of_images.best(), "images": score_pass.images_of_texts.best()}
        tensors = {name: torch.from_numpy(keys) for name, keys in best.items()}
        save_tensors(self.path, tensors, self._header(score_pass, score_pass.done))

    def remove(self) -> None:
        """Remove the saved state, once the pass is complete."""
        self.path.unlink(missing_ok=True)

    def _header(self, score_pass: ScorePass, done: object) -> dict[str, Any]:
        return {**self._identity, "tiles": [len(score_pass.rows), len(score_pass.columns)], "done": done}

    def _restore(self, score_pass: ScorePass) -> None:
        """Continue from the saved state if it is intact and of this pass, else start from the beginning."""
        try:
            tensors, header = load_tensors(self.path)
        except RunError:
            return
        if header == self._header(score_pass, header.get("done")):
            score_pass.texts_of_images.restore(tensors["texts"].numpy())
            score_pass.images_of_texts.restore(tensors["images"].numpy())
            score_pass.done = header["done"]
