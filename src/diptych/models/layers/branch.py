"""A branch: layers that map one side's vectors into a joint space, as unit vectors.

    FC - ReLU - dropout - ... - FC - batch norm - L2        (Wang, Li, Lazebnik 2018, sections 3.2.1 and 5.3)

One layer without batch norm is the paper's linear branch. Weights start as in VSE's projections: Xavier, zero bias.
A branch may standardise its inputs first: of vectors of length one, every entry is small, and so are the gradients of
the first layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from diptych.models.layers.batch_norm import normed
from diptych.models.layers.precision import normalize
from diptych.models.layers.sets import present
from diptych.models.layers.standardise import Standardise


class Branch(nn.Module):
    """Maps vectors (.., inputs) to unit vectors, (.., the last of `layers`).

    In sets, (items, places, inputs), empty places stay zeros and do not count in the batch statistics.
    """

    def __init__(
        self, inputs: int, layers: Sequence[int], dropout: float, normalised: bool, standardised: bool = False
    ) -> None:
        super().__init__()
        self.standardise = Standardise(inputs) if standardised else None
        steps: list[nn.Module] = []
        for size, outputs in pairwise((inputs, *layers)):
            if steps:
                steps += [nn.ReLU(), nn.Dropout(dropout)]
            steps.append(linear(size, outputs))
        self.layers = nn.Sequential(*steps)
        self.norm = nn.BatchNorm1d(layers[-1]) if normalised else None

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors, or sets of vectors, into the joint space."""
        if vectors.dim() == 2:
            return normalize(self._before_l2(vectors), dim=1)
        sets = vectors.flatten(0, -3)
        there = present(sets)
        joint = normalize(self._before_l2(sets[there]), dim=1)
        everywhere = joint.new_zeros(*there.shape, joint.shape[1])
        everywhere[there] = joint
        return everywhere.view(*vectors.shape[:-1], joint.shape[1])

    def _before_l2(self, vectors: Tensor) -> Tensor:
        """All but the normalisation of each vector."""
        inputs = vectors if self.standardise is None else self.standardise(vectors)
        outputs: Tensor = self.layers(inputs)
        return outputs if self.norm is None else normed(self.norm, outputs)


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A linear layer with Xavier weights and, if it has one, a zero bias."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
