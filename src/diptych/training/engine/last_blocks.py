"""`last:2` in a recipe: the last blocks of each tower, whatever its architecture calls them.

A block is an element of a sequence of modules (`nn.Sequential` or `nn.ModuleList`, sequences in sequences as one) with
several layers of weights, such as a layer of a transformer or a residual block. Trained are the last of them, and what
the tower registers behind them, except word embeddings. A tower without blocks, such as a GRU, is trained as a whole,
and so is what is outside of the towers: projections and heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import nn

from diptych.errors import RecipeError
from diptych.models.tower import is_tower

LAST = "last:"

_SEQUENCES = (nn.Sequential, nn.ModuleList)


def last_blocks(matcher: nn.Module, part: str) -> list[str]:
    """The names of the modules that `last:N` stands for; RecipeError if no tower has blocks, or one has fewer."""
    if not re.fullmatch(rf"{LAST}[1-9]\d*", part):
        raise RecipeError(f"{part!r} does not say how many blocks; write last:2 for two")
    count = int(part.removeprefix(LAST))
    towers = dict(_towers(matcher))
    blocks = {name: list(_blocks(tower)) for name, tower in towers.items()}
    if not any(blocks.values()):
        raise RecipeError(f"{part!r}: no tower of the model is a sequence of blocks; name parts instead")
    for name, found in blocks.items():
        if 0 < len(found) < count:
            raise RecipeError(f"{part!r}: {name} has {len(found)} blocks; name fewer")
    inside = [
        f"{name}.{module}" if found else name
        for name, found in blocks.items()
        for module in (_from(towers[name], found[-count]) if found else ("",))
    ]
    return [*inside, *_outside(matcher, towers)]


def _towers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost towers, by name."""
    for name, child in module.named_children():
        if is_tower(child):
            yield f"{prefix}{name}", child
        else:
            yield from _towers(child, f"{prefix}{name}.")


def _blocks(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """The names of the blocks of a tower, in the order in which they were registered."""
    is_sequence = isinstance(module, _SEQUENCES)
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        inner = [] if is_sequence and not isinstance(child, _SEQUENCES) else list(_blocks(child, f"{path}."))
        if inner:
            yield from inner
        elif is_sequence and _weighted_layers(child) > 1:
            yield path


def _from(tower: nn.Module, block: str) -> Iterator[str]:
    """A block, and all modules that are registered behind it, except embeddings."""
    yield block
    *path, own = block.split(".")
    while True:
        children = dict(tower.get_submodule(".".join(path)).named_children())
        behind = list(children)[list(children).index(own) + 1 :]
        yield from (".".join([*path, name]) for name in behind if not isinstance(children[name], nn.Embedding))
        if not path:
            return
        own = path.pop()


def _outside(module: nn.Module, towers: dict[str, nn.Module], prefix: str = "") -> Iterator[str]:
    """The modules that neither are towers nor contain any."""
    for name, child in module.named_children():
        if any(tower.startswith(f"{prefix}{name}.") for tower in towers):
            yield from _outside(child, towers, f"{prefix}{name}.")
        elif f"{prefix}{name}" not in towers:
            yield f"{prefix}{name}"


def _weighted_layers(module: nn.Module) -> int:
    """The number of modules in a module, itself included, that have weights of their own."""
    return sum(any(True for _ in each.parameters(recurse=False)) for each in module.modules())
