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
    trainable = [parameter for parameter in matcher.parameters() if parameter.requires_grad]
    if not trainable:
        raise RecipeError(f"trainable = {list(parts)}: nothing in these parts can be trained; name others, or 'all'")
    return trainable


def train_mode(matcher: Matcher) -> None:
    """Put what is trained into training mode; a frozen part stays as in evaluation, its statistics with it."""
    matcher.train()
    frozen = [
        module
        for module in matcher.modules()
        if any(True for _ in module.parameters()) and not any(p.requires_grad for p in module.parameters())
    ]
    for module in frozen:
        module.eval()


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
    """Notices when a training has been stuck in a trap of its objective for a number of steps in a row."""

    def __init__(self, objective: Objective, steps: int, stuck: int = 0) -> None:
        self._objective = objective
        self._steps = steps
        self.stuck = stuck

    def collapsed(self, total: float, scored: ScoredPairs) -> bool:
        """Whether this step completes the number of steps; true once for each such row."""
        self.stuck = self.stuck + 1 if self._objective.stuck(scored, total) else 0
        return self.stuck == self._steps


def _parameters(optimiser: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimiser.param_groups for parameter in group["params"])
