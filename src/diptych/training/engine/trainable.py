"""Which parts of a matcher a stage trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from diptych.errors import RecipeError, did_you_mean
from diptych.models.lora import LoRASettings, add_low_rank
from diptych.models.matcher import Matcher
from diptych.training.engine.last_blocks import LAST, last_blocks


def set_trainable(matcher: Matcher, parts: tuple[str, ...], lora: LoRASettings | None = None) -> list[nn.Parameter]:
    """Make the named parts trainable, freeze all others, and return the trainable parameters.

    A part that is `trained_only_by_name` stays frozen unless it, or a part of it, is named itself. With `lora`,
    low-rank factors are added to the frozen matrices of its parts, and trained, too.
    """
    trained = [weights_of(matcher, part, "trainable") for part in parts]
    for name, parameter in matcher.named_parameters():
        parameter.requires_grad_(any(includes(name) for includes in trained))
    if lora is not None:
        add_low_rank(matcher, lora, {part: weights_of(matcher, part, "lora.parts") for part in lora.parts})
    trainable = [parameter for parameter in matcher.parameters() if parameter.requires_grad]
    if not trainable:
        raise RecipeError(f"trainable = {list(parts)}: nothing in these parts can be trained; name others, or 'all'")
    return trainable


def weights_of(matcher: Matcher, part: str, where: str) -> Callable[[str], bool]:
    """Whether a part includes the weights of a name; `where` is the recipe's key.

    A part is the name of a module, `all`, or `last:2` for the last two blocks of each tower.
    """
    prefixes = _prefixes(matcher, part, where)
    reserved = [f"{name}." for name, each in matcher.named_modules() if getattr(each, "trained_only_by_name", False)]

    def includes(weights: str) -> bool:
        owner = next((prefix for prefix in reserved if weights.startswith(prefix)), "")
        return any(weights.startswith(prefix) and prefix.startswith(owner) for prefix in prefixes)

    return includes


def _prefixes(matcher: Matcher, part: str, where: str) -> list[str]:
    """What the names of a part's weights begin with."""
    if part == "all":
        return [""]
    if part.startswith(LAST):
        try:
            return [f"{name}." for name in last_blocks(matcher, part)]
        except RecipeError as reason:
            raise RecipeError(f"{where}: {reason}") from None
    check_part(matcher, part, where)
    return [f"{part}."]


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


@contextmanager
def evaluation_mode(matcher: Matcher) -> Iterator[None]:
    """Evaluate for a while: then every module is in the mode again that it was in."""
    modes = [(module, module.training) for module in matcher.modules()]
    matcher.eval()
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training


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
