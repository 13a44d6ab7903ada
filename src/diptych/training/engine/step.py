"""One step of training: scores, loss, gradients, clipping, and the optimiser's update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diptych.data.sampling.batch import PairBatch
from diptych.models.matcher import Matcher
from diptych.objectives.objective import Loss, Objective, ScoreSummary
from diptych.training.distributed.encoding import seed_common
from diptych.training.distributed.gradients import sum_gradients, take_gradients_of_first
from diptych.training.engine.choice import Choice, Metrics, choose_solution
from diptych.training.engine.chunks import chunked_gradients
from diptych.training.engine.precision import BatchEncoder, LossScaler
from diptych.training.engine.scoring import BatchScorer, encode_pairs, tokens_to_device
from diptych.training.engine.trainable import evaluation_mode
from diptych.training.needs.need import EncodedPairs, Need


@dataclass(frozen=True)
class Step:
    """Trains on one batch when called; a step whose gradients overflow in float16 is skipped.

    `parameters` are the objective's own, `clip` is the largest gradient norm (0 for no limit), and `chunk` the number
    of images or texts that are encoded at a time (all by default). `encoder` encodes and scores the batches with the
    matcher's weights, if they hold something else than the matcher's inputs or in another precision.
    """

    matcher: Matcher
    objective: Objective
    optimiser: Optimizer
    device: torch.device
    clip: float = 0.0
    chunk: int | None = None
    parameters: nn.ParameterDict = field(default_factory=nn.ParameterDict)
    needs: tuple[Need, ...] = ()
    encoder: BatchEncoder | None = None
    scaler: LossScaler = field(default_factory=LossScaler)

    @property
    def resumes_within_epoch(self) -> bool:
        """Whether a snapshot within an epoch holds all that later steps depend on."""
        return True

    def __call__(self, batch: PairBatch) -> tuple[Loss, ScoreSummary]:
        """Train on one batch."""
        self.optimiser.zero_grad()
        loss, summary = self.gradients(batch)
        if not self.scaler.unscale(self.optimiser):
            return loss, summary
        if self.clip:
            nn.utils.clip_grad_norm_(_parameters(self.optimiser), self.clip)
        self.optimiser.step()
        for need in self.needs:
            need.after_step(self.optimiser)
        return loss, summary

    def gradients(self, batch: PairBatch) -> tuple[Loss, ScoreSummary]:
        """Add a batch's gradients to those of all trainable parameters, on all ranks if it is shared.

        They are those of the scaled loss. All ranks have the same, and find the same overflows.
        """
        if batch.share is None:
            return self._gradients(batch)
        seed_common(batch.share)
        computed = self._gradients(batch)
        sum_gradients(self.matcher.parameters(), batch.share.ranks)
        take_gradients_of_first(self.parameters.values(), batch.share.ranks)
        return computed

    def _gradients(self, batch: PairBatch) -> tuple[Loss, ScoreSummary]:
        encoder: BatchEncoder = self.matcher if self.encoder is None else self.encoder
        if self.chunk is not None and self.chunk < len(batch):
            parameters = dict(self.parameters)
            backward = self.scaler.backward
            return chunked_gradients(
                encoder, self.objective, parameters, batch, self.chunk, device=self.device, backward=backward
            )
        batch = self._narrowed(encoder, batch)
        for need in self.needs:
            need.before_step(batch, self.optimiser, self.device)
        score = BatchScorer(encoder, self.objective, self.needs, self.device, dict(self.parameters))
        scored, model_terms = score(batch)
        loss = replace(self.objective.loss(scored), model_terms=model_terms)
        self.scaler.backward(loss.total)
        for need in self.needs:
            need.after_loss(batch, loss)
        return loss, self.objective.summary(scored)

    @torch.no_grad()
    def _narrowed(self, encoder: BatchEncoder, batch: PairBatch) -> PairBatch:
        """The batch without what no need will use."""

        def encode(batch: PairBatch) -> EncodedPairs:
            with evaluation_mode(self.matcher):
                return encode_pairs(encoder, batch, self.device)

        for need in self.needs:
            batch = need.narrow(batch, encode)
        return batch

    def finish_epoch(self, select: str, validate: Callable[[], Metrics]) -> Choice | None:
        """Called after the last batch of an epoch; returns what was chosen by the metric `select` on val, if anything.

        `validate` measures the matcher on val as it is now.
        """
        return None


@dataclass(frozen=True)
class ClosedFormStep(Step):
    """Accumulates each batch and computes the weights at the end of the epoch, without gradients.

    If the matcher offers several solutions, the best on val is kept.
    """

    @property
    def resumes_within_epoch(self) -> bool:
        """What was accumulated is not part of a snapshot."""
        return False

    def __call__(self, batch: PairBatch) -> tuple[Loss, ScoreSummary]:
        """Accumulate one batch; its loss is reported as 0."""
        tokens = tokens_to_device(batch.ids, batch.lengths, batch.text_features, self.device)
        images, image_of, text_of = (
            torch.from_numpy(values).to(self.device) for values in (batch.images, batch.image_of, batch.text_of)
        )
        self.matcher.accumulate(images, tokens, image_of, text_of)
        zero = torch.zeros((), device=self.device)
        return Loss({self.objective.name: zero}), ScoreSummary(0.0, 0.0, torch.ones(len(batch)))

    def finish_epoch(self, select: str, validate: Callable[[], Metrics]) -> Choice:
        """Compute the weights."""
        return choose_solution(self.matcher, select, validate)


def _parameters(optimiser: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimiser.param_groups for parameter in group["params"])
