"""How far a part of an objective has been ramped up: from 0 to 1, after a number of steps or once a loss has fallen.

    share = min(1, max(0, (step - start) / steps)),  start = `after`, or the first step before which l < `below`
    l <- (1 - SMOOTHING) l + SMOOTHING (the loss term per pair), from the first batch on

The state, the steps of the stage and l, is in snapshots, so that a resumed stage ramps as one that was never stopped.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from diptych.data.sampling.batch import PairBatch
from diptych.objectives.extras import RampOptions, RampShare
from diptych.objectives.objective import Loss
from diptych.training.context import StageContext
from diptych.training.needs.need import EncodedPairs, Need

SMOOTHING = 0.02  # about 50 steps
STATE = "ramp.state"  # in a snapshot: the step, the start and the smoothed loss


class Ramp(Need):
    """Counts steps and smooths a loss term, and tells the objective how far its ramp has come."""

    name: ClassVar[str] = "ramp"

    def __init__(self, options: RampOptions) -> None:
        self._options = options
        self._step = 0
        self._start = math.inf if options.after is None else float(options.after)  # infinity until it is known
        self._smoothed = math.inf  # before the first batch

    @classmethod
    def prepare(cls, context: StageContext) -> Self:
        """Begin at step 0; a resumed stage reads its state from the snapshot."""
        options: RampOptions = context.stage.objective.need_options(cls.name)
        return cls(options)

    @property
    def share(self) -> float:
        """How far the ramp has come for the next batch."""
        return min(1.0, max(0.0, (self._step - self._start) / self._options.steps))

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> RampShare:
        """The share of this step."""
        return RampShare(self.share)

    def after_loss(self, batch: PairBatch, loss: Loss) -> None:
        """Count the step and, before the ramp has begun, smooth the loss term."""
        self._step += 1
        if math.isfinite(self._start):
            return
        term = loss.terms[self._options.term].detach().clone()
        if batch.share is not None:
            batch.share.ranks.broadcast_(term)  # so that rounding cannot part the ranks
        found = float(term) / (1 if loss.is_mean else len(batch))
        before = self._smoothed if math.isfinite(self._smoothed) else found
        self._smoothed = before + SMOOTHING * (found - before)
        if self._smoothed < self._options.below:
            self._start = float(self._step)

    def reported(self) -> dict[str, float]:
        """The share at the end of an epoch."""
        return {"ramp": self.share}

    def state(self) -> dict[str, Tensor]:
        """Step, start and smoothed loss."""
        return {STATE: torch.tensor([self._step, self._start, self._smoothed], dtype=torch.float64)}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a snapshot was taken."""
        step, self._start, self._smoothed = tensors[STATE].tolist()
        self._step = int(step)
