"""Several backbones side by side, `lite0+lite1+lite2`: their vectors of an image, one after another.

Networks of different sizes make different mistakes: at equal cost, one view through each of three small networks gives
better features than several views through one of them. A recipe names the parts of the second network `parts.1.`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.features.backbones.timm_models import NO_GRID

SEPARATOR = "+"


class JoinedBackbone(Backbone):
    """Reads squares of the first network's side. Grids of different networks do not fit, so it has no regions."""

    def __init__(self, parts: Sequence[Backbone]) -> None:
        super().__init__()
        self.name = SEPARATOR.join(part.name for part in parts)
        self.side = parts[0].side
        self.any_side = all(part.any_side for part in parts)
        self.size = sum(part.size for part in parts)
        self.grid = NO_GRID
        for part in parts:
            if part.side != self.side and not part.any_side:
                raise RecipeError(
                    f"backbone {self.name!r}: {parts[0].name} reads squares of {self.side} pixels and {part.name} only "
                    f"those of {part.side}; join networks that read the same"
                )
        self.parts = nn.ModuleList(parts)

    def regions(self, pixels: Tensor) -> Tensor:
        """Raise RecipeError."""
        raise RecipeError(f"backbone {self.name!r}: joined networks have no common grid; name one of them")

    def forward(self, pixels: Tensor) -> Tensor:
        """The vectors of all networks, one after another: (images, size)."""
        return torch.cat([part(pixels) for part in self.parts], dim=1)


def join(name: str, open_part: Callable[[str], Backbone]) -> JoinedBackbone:
    """Join the backbones that a name lists, each built or loaded by `open_part`."""
    names = name.split(SEPARATOR)
    if not all(names):
        raise RecipeError(f"backbone {name!r}: an empty name beside '+'; write it like lite0+lite1")
    if len(set(names)) < len(names):
        raise RecipeError(f"backbone {name!r}: lists a network twice; name each once")
    return JoinedBackbone([open_part(one) for one in names])


def refuse_weights(name: str, weights: Path | None) -> None:
    """Refuse a file of weights, which belongs to one network."""
    if weights is not None:
        raise RecipeError(f"backbone {name!r}: a file of weights belongs to one network; leave out model.image.weights")
