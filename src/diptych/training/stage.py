"""One stage: what is trainable, the optimiser and its schedule, and the step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from diptych.data.batches import PairBatch
from diptych.errors import RecipeError, nearest
from diptych.models.matcher import Matcher
from diptych.models.towers import Tokens
from diptych.objectives.objective import Loss, Objective, ScoredPairs
from diptych.training.recipe import Optimiser


def set_trainable(matcher: Matcher, parts: tuple[str, ...]) -> list[nn.Parameter]:
    """Make the named parts trainable and all others not; the trainable parameters."""
    for part in parts:
        if part != "all":
            _check_part(matcher, part, "trainable")
    for name, parameter in matcher.named_parameters():
        parameter.requires_grad_(any(part == "all" or name.startswith(f"{part}.") for part in parts))
    trainable = [parameter for parameter in matcher.parameters() if parameter.requires_grad]
    if not trainable:
        raise RecipeError(f"trainable = {list(parts)}: nothing in these parts can be trained; name others, or 'all'")
    return trainable


def _check_part(matcher: Matcher, part: str, where: str) -> None:
    known = {name for name, _ in matcher.named_modules() if name}
    if part not in known:
        if "backbone" in part.split(".") and matcher.pretrained is None:
            raise RecipeError(f"{where}: {part!r} is part of a backbone, and the model reads no photos through one")
        depth = part.count(".")
        near = {name for name in known if name.count(".") == depth} or known
        raise RecipeError(f"{where}: the model has no part {part!r}; {nearest(part, near | {'all'})}")


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


def make_optimiser(matcher: Matcher, settings: Optimiser) -> Optimizer:
    """Adam over what is trainable, in torch's single-pass form where there is one; a group a multiple of the rate."""
    for part in settings.parts:
        _check_part(matcher, part, "optimiser.parts")
    groups: dict[float, list[nn.Parameter]] = {}
    trained = [name for name, parameter in matcher.named_parameters() if parameter.requires_grad]
    for part in settings.parts:
        if not any(name.startswith(f"{part}.") for name in trained):
            raise RecipeError(f"optimiser.parts: nothing in {part!r} is trained; add it to trainable, or leave it out")
    for name, parameter in matcher.named_parameters():
        if parameter.requires_grad:
            inside = [part for part in settings.parts if name.startswith(f"{part}.")]
            multiple = settings.parts[max(inside, key=len)] if inside else 1.0
            groups.setdefault(multiple, []).append(parameter)
    fused = next(matcher.parameters()).device.type in ("cpu", "cuda")
    named = [{"params": parameters, "multiple": multiple} for multiple, parameters in groups.items()]
    return Adam(named, lr=settings.rate, fused=fused)


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Give each group its multiple of a rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["multiple"]


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
