"""What a pass over tiles leaves while it is not finished: a file beside the result, from which it goes on."""

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

SECONDS_BETWEEN_SAVES = 60.0


class ResumablePass:
    """The file of an unfinished pass; `about` is what must be the same for going on."""

    def __init__(self, file: Path, about: dict[str, Any]) -> None:
        self.path = file.with_name(f"{file.name}.partial")
        self._about = about

    def run(self, tiles: ScorePass, tell: Callable[[int], None]) -> None:
        """Do all that is left; on Ctrl-C, or whatever `tell` raises, what was done is saved first."""
        self._take_up(tiles)
        saved = time.monotonic()
        with interrupt_event() as stopped, closing(tiles.left()) as left:
            for texts in left:
                try:
                    tell(texts)
                    if stopped.is_set():
                        raise KeyboardInterrupt
                except BaseException:
                    self._save(tiles)
                    raise
                if time.monotonic() - saved >= SECONDS_BETWEEN_SAVES:
                    self._save(tiles)
                    saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the pass is finished."""
        self.path.unlink(missing_ok=True)

    def _header(self, tiles: ScorePass, done: object) -> dict[str, Any]:
        return {**self._about, "tiles": [len(tiles.rows), len(tiles.columns)], "done": done}

    def _save(self, tiles: ScorePass) -> None:
        best = {"texts": tiles.texts_of_images.best(), "images": tiles.images_of_texts.best()}
        tensors = {name: torch.from_numpy(keys) for name, keys in best.items()}
        save_tensors(self.path, tensors, self._header(tiles, tiles.done))

    def _take_up(self, tiles: ScorePass) -> None:
        """Go on from the file if it is whole and of this pass, else from the beginning."""
        try:
            tensors, about = load_tensors(self.path)
        except RunError:
            return
        if about == self._header(tiles, about.get("done")):
            tiles.texts_of_images.restore(tensors["texts"].numpy())
            tiles.images_of_texts.restore(tensors["images"].numpy())
            tiles.done = about["done"]
