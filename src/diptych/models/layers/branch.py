"""A branch: layers that bring one side's vectors into a joint space, where they have length one.

    FC - ReLU - dropout - ... - FC - batch norm - L2        (Wang, Li, Lazebnik 2018, sections 3.2.1 and 5.3)

One layer without batch norm is the paper's linear branch. Weights start as VSE's projections do: Xavier, no bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import batch_norm, normalize

from diptych.errors import RecipeError
from diptych.models.layers.sets import present
from diptych.models.matchers.two_towers import TwoTowers, TwoTowerSettings
from diptych.models.tower import Tokens
from diptych.settings import Count, Flag, Number

Layers = Annotated[tuple[Count, ...], Field(min_length=1)]


class Branch(nn.Module):
    """Vectors (.., inputs) to vectors of length one, (.., the last of `layers`).

    Of sets, (items, places, inputs), the empty places stay zeros, and are nothing to the batch's statistics.
    """

    def __init__(self, inputs: int, layers: Sequence[int], dropout: float, normalised: bool) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for size, outputs in pairwise((inputs, *layers)):
            if steps:
                steps += [nn.ReLU(), nn.Dropout(dropout)]
            steps.append(linear(size, outputs))
        self.layers = nn.Sequential(*steps)
        self.norm = nn.BatchNorm1d(layers[-1]) if normalised else None

    def forward(self, vectors: Tensor) -> Tensor:
        """Bring vectors, or sets of them, into the joint space."""
        if vectors.dim() == 2:
            return normalize(self._normed(self.layers(vectors)), dim=1)
        sets = vectors.flatten(0, -3)
        there = present(sets)
        joint = normalize(self._normed(self.layers(sets[there])), dim=1)
        everywhere = joint.new_zeros(*there.shape, joint.shape[1])
        everywhere[there] = joint
        return everywhere.view(*vectors.shape[:-1], joint.shape[1])

    def _normed(self, vectors: Tensor) -> Tensor:
        """Batch norm, where the branch has it."""
        return vectors if self.norm is None else normed(self.norm, vectors)


class BranchSettings(TwoTowerSettings):
    """Towers and the sizes of the layers behind them: those of the paper's section 5.

    The last of `image_layers` and of `text_layers` is the size of the joint space. `dropout` follows each ReLU;
    `batch_norm` the last layer.
    """

    image_layers: Layers = (2048, 512)
    text_layers: Layers = (2048, 512)
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.5
    batch_norm: Flag = True


class Branched(TwoTowers):
    """Two towers and a branch behind each; parts are `image`, `image_branch`, `text` and `text_branch`."""

    def __init__(self, settings: BranchSettings) -> None:
        super().__init__(settings)
        if settings.image_layers[-1] != settings.text_layers[-1]:
            raise RecipeError(
                f"model.image_layers ends in {settings.image_layers[-1]} and model.text_layers in "
                f"{settings.text_layers[-1]}: both must end in the size of the joint space"
            )
        options = settings.dropout, settings.batch_norm
        self.image_branch = Branch(self.image.size, settings.image_layers, *options)
        self.text_branch = Branch(self.text.size, settings.text_layers, *options)

    def encode_images(self, images: Tensor) -> Tensor:
        """What the image tower reads to (images, joint), or to (images, regions, joint) with zeros for no region."""
        joint: Tensor = self.image_branch(self.image(images))
        return joint

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Tokens to (texts, joint)."""
        joint: Tensor = self.text_branch(self.text(tokens))
        return joint


def normed(norm: nn.BatchNorm1d, vectors: Tensor) -> Tensor:
    """Batch norm of vectors (vectors, size); fewer than two have no statistics of their own."""
    if norm.training and len(vectors) < 2:
        return batch_norm(vectors, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    out: Tensor = norm(vectors)
    return out


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A layer with Xavier weights and, at first, no bias."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
