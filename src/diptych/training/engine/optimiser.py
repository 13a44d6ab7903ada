"""The optimiser of a stage, and its learning rates."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import SGD, Adam, Optimizer

from diptych.errors import RecipeError
from diptych.models.matcher import Matcher
from diptych.training.engine.trainable import check_part
from diptych.training.recipe import Optimiser

DEFAULT_MOMENTUM = 0.9  # of SGD


def make_optimiser(matcher: Matcher, settings: Optimiser, objective: Iterable[nn.Parameter] = ()) -> Optimizer:
    """An optimiser of what is trainable, with one parameter group per multiple of the rate.

    Parameters of the objective use the rate itself. Weight decay applies to parameters with two or more dimensions.
    """
    for part in settings.parts:
        check_part(matcher, part, "optimiser.parts")
    trainable = [(name, parameter) for name, parameter in matcher.named_parameters() if parameter.requires_grad]
    for part in settings.parts:
        if not any(name.startswith(f"{part}.") for name, _ in trainable):
            raise RecipeError(f"optimiser.parts: nothing in {part!r} is trained; add it to trainable, or leave it out")
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trainable:
        matching = [part for part in settings.parts if name.startswith(f"{part}.")]
        multiple = settings.parts[max(matching, key=len)] if matching else 1.0
        groups.setdefault((multiple, _decay(parameter, settings)), []).append(parameter)
    for parameter in objective:
        groups.setdefault((1.0, _decay(parameter, settings)), []).append(parameter)
    parameters = [
        {"params": members, "multiple": multiple, "weight_decay": decay}
        for (multiple, decay), members in groups.items()
    ]
    fused = next(matcher.parameters()).device.type in ("cpu", "cuda")  # one pass over the parameters
    if settings.name == "sgd":
        momentum = DEFAULT_MOMENTUM if settings.momentum is None else settings.momentum
        return SGD(parameters, lr=settings.rate, momentum=momentum, nesterov=settings.nesterov, fused=fused)
    return Adam(parameters, lr=settings.rate, fused=fused)


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Set the learning rate of each group to its multiple of a rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["multiple"]


def current_rate(optimiser: Optimizer) -> float:
    """The rate that `set_rate` was last called with."""
    group = optimiser.param_groups[0]
    return float(group["lr"] / group["multiple"])


def _decay(parameter: nn.Parameter, settings: Optimiser) -> float:
    return settings.decay if parameter.dim() > 1 else 0.0
