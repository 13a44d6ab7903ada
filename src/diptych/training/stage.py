"""One stage: what is trainable, the optimiser and its schedule, and the step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from diptych.data.batches import PairBatch
from diptych.errors import RecipeError, nearest
from diptych.models.matcher import Matcher, Tokens
from diptych.objectives.objective import Loss, Objective, ScoredPairs
from diptych.training.recipe import Optimiser, Schedule


def set_trainable(matcher: Matcher, parts: tuple[str, ...]) -> list[nn.Parameter]:
    """Make the named parts trainable and all others not; the trainable parameters."""
    known = {name for name, _ in matcher.named_modules() if name} | {"all"}
    for part in parts:
        if part not in known:
            top = {name for name in known if "." not in name}
            raise RecipeError(f"trainable: the model has no part {part!r}; {nearest(part, top)}")
    for name, parameter in matcher.named_parameters():
        parameter.requires_grad_(any(part == "all" or name.startswith(f"{part}.") for part in parts))
    return [parameter for parameter in matcher.parameters() if parameter.requires_grad]


def make_optimiser(parameters: list[nn.Parameter], settings: Optimiser) -> Optimizer:
    """Adam, in torch's single-pass form where there is one."""
    fused = parameters[0].device.type in ("cpu", "cuda")
    return Adam(parameters, lr=settings.rate, fused=fused)


def rate_at(epoch: int, rate: float, schedule: Schedule) -> float:
    """The learning rate of an epoch, counted from 1."""
    return float(rate * schedule.factor ** ((epoch - 1) // schedule.every))


def score_pairs(matcher: Matcher, batch: PairBatch, device: torch.device) -> ScoredPairs:
    """Encode each distinct image and each text once and score them as pairs."""
    images = matcher.encode_images(torch.from_numpy(batch.images).to(device))
    texts = matcher.encode_texts(
        Tokens(torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.lengths).to(device))
    )
    image_of = torch.from_numpy(batch.image_of).to(device)
    groups = torch.from_numpy(batch.groups).to(device)
    scores = matcher.score(images, texts)[image_of]  # (distinct images, pairs) to (pairs, pairs)
    return ScoredPairs(scores, groups[:, None] == groups[None, :])


def train_step(
    matcher: Matcher,
    objective: Objective,
    optimiser: Optimizer,
    clip: float,
    batch: PairBatch,
    device: torch.device,
) -> tuple[Loss, ScoredPairs]:
    """One step of training on one batch."""
    scored = score_pairs(matcher, batch, device)
    loss = objective(scored)
    optimiser.zero_grad()
    loss.total.backward()  # type: ignore[no-untyped-call]
    if clip:
        nn.utils.clip_grad_norm_(_parameters(optimiser), clip)
    optimiser.step()
    return loss, scored


class CollapseWatch:
    """Notices when a training has sat in its objective's trap, all encodings equal, for a number of steps."""

    def __init__(self, objective: Objective, steps: int, stuck: int = 0) -> None:
        self._objective = objective
        self._steps = steps
        self.stuck = stuck

    def collapsed(self, total: float, scored: ScoredPairs) -> bool:
        """Whether this step completes the number of steps in a row; true once for each such row."""
        trap = self._objective.trap(scored)
        scores = scored.scores.detach()
        spread = float(scores.max() - scores.min())
        here = trap is not None and trap > 0 and abs(total - trap) < 0.01 * trap and spread < 0.05
        self.stuck = self.stuck + 1 if here else 0
        return self.stuck == self._steps


def _parameters(optimiser: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimiser.param_groups for parameter in group["params"])
