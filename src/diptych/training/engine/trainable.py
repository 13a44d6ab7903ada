"""Which parts of a matcher a stage trains."""

from __future__ import annotations

from torch import nn

from diptych.errors import RecipeError, did_you_mean
from diptych.models.matcher import Matcher


def set_trainable(matcher: Matcher, parts: tuple[str, ...]) -> list[nn.Parameter]:
    """Make the named parts trainable, freeze all others, and return the trainable parameters.

    A part that is `trained_only_by_name` stays frozen unless it, or a part of it, is named itself.
    """
    for part in parts:
        if part != "all":
            check_part(matcher, part, "trainable")
    reserved = [name for name, module in matcher.named_modules() if getattr(module, "trained_only_by_name", False)]
    for name, parameter in matcher.named_parameters():
        owner = next((part for part in reserved if name.startswith(f"{part}.")), "")
        parameter.requires_grad_(any(_includes(part, name) and part.startswith(owner) for part in parts))
    trainable = [parameter for parameter in matcher.parameters() if parameter.requires_grad]
    if not trainable:
        raise RecipeError(f"trainable = {list(parts)}: nothing in these parts can be trained; name others, or 'all'")
    return trainable


def _includes(part: str, parameter: str) -> bool:
    return part == "all" or parameter.startswith(f"{part}.")


def train_mode(matcher: Matcher) -> None:
    """Put trainable parts into training mode; frozen parts stay in evaluation mode, with their statistics."""
    matcher.train()
    frozen = [
        module
        for module in matcher.modules()
        if any(True for _ in module.parameters()) and not any(p.requires_grad for p in module.parameters())
    ]
    for module in frozen:
        module.eval()


def check_part(matcher: Matcher, part: str, where: str) -> None:
    """Refuse the name of a part that the matcher does not have; `where` is the recipe's key."""
    known = {name for name, _ in matcher.named_modules() if name}
    if part in known:
        return
    if "backbone" in part.split(".") and matcher.pretrained is None:
        raise RecipeError(f"{where}: {part!r} is part of a backbone, and the model reads no photos through one")
    depth = part.count(".")
    similar = {name for name in known if name.count(".") == depth} or known
    raise RecipeError(f"{where}: the model has no part {part!r}; {did_you_mean(part, similar | {'all'})}")
