"""The similarity network: the branches of the embedding network, their product, and layers that turn it into a score.

    p(x, y) = FC( ... ReLU(FC( f(x) * g(y) ))),  * element by element

Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, section 3.3.
Needs: what `two_branch` needs; trained with `logistic`, the score is the logit of "these belong together".
When to use it: to find phrases in a photo, where the paper finds it as good as the embedding network; not to find
images by sentences, where it is far behind.
Relation to others: `two_branch` scores the same vectors by their distance and can be indexed. Here every pair passes
through layers. The first is linear in the product: (f * g) W is g (f W), so the smaller side scales the weights and one
matrix product serves many pairs. Its output is computed in blocks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as apply_linear

from diptych.errors import RunError
from diptych.models.layers.branch import linear
from diptych.models.layers.sets import present
from diptych.models.matchers.branched import Branched, BranchSettings
from diptych.settings import Count

BLOCK = 1 << 22  # outputs of the first layer in memory at once: 16 MB
MANY = 1024  # items of the larger side in one matrix product
NO_REGION = -1e4  # the logit of a photo without regions: certainly no match, and still finite for averages


class SimilarityNetSettings(BranchSettings):
    """Towers, branches, and the sizes of the layers between their product and the score; may be empty."""

    name: Literal["similarity_net"] = "similarity_net"
    fused: tuple[Count, ...] = (512, 256)

    def build(self) -> SimilarityNet:
        """A matcher with random weights."""
        return SimilarityNet(self)


class SimilarityNet(Branched):
    """See the module docstring. Its parts are those of `two_branch`, and `fused`."""

    def __init__(self, settings: SimilarityNetSettings) -> None:
        super().__init__(settings)
        self.settings: SimilarityNetSettings = settings
        sizes = (settings.image_layers[-1], *settings.fused, 1)
        layers = [linear(*inner) for inner in pairwise(sizes)]
        self.fused = nn.Sequential(layers[0], *(step for layer in layers[1:] for step in (nn.ReLU(), layer)))

    @property
    def is_inner_product(self) -> bool:
        """Never: the score is learned."""
        return False

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The network's output, or that of an image's best region: (images, texts)."""
        self._check_weights()
        if images.dim() == 2:
            return self._all(images, texts)
        return torch.stack([self._best_of(regions, texts) for regions in images])

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        self._check_weights()
        places = 1 if images.dim() == 2 else images.shape[1]
        size = max(1, BLOCK // (places * max(self._first.weight.shape)))
        blocks = zip(torch.split(images, size), torch.split(texts, size), strict=True)
        return torch.cat([self._pairs(*block) for block in blocks])

    def _pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        if images.dim() == 2:
            scores: Tensor = self.fused(images * texts)
            return scores.squeeze(1)
        scores = self.fused(images * texts[:, None]).squeeze(2)  # (pairs, regions)
        return scores.masked_fill(~present(images), NO_REGION).amax(1)

    def _best_of(self, regions: Tensor, texts: Tensor) -> Tensor:
        """One image's best region for each text: (texts,)."""
        own = regions[present(regions[None])[0]]
        return self._all(own, texts).amax(0) if len(own) else texts.new_full((len(texts),), NO_REGION)

    def _all(self, some: Tensor, others: Tensor) -> Tensor:
        """The scores of all pairs of vectors: (some, others). The product is symmetric."""
        if len(others) < len(some):
            return self._all(others, some).t()
        width, joint = self._first.weight.shape
        size = max(1, BLOCK // (width * max(joint, min(len(others), MANY))))
        return torch.cat([self._rows(few, others) for few in torch.split(some, size)])

    def _rows(self, few: Tensor, others: Tensor) -> Tensor:
        scaled = (few[:, None] * self._first.weight).flatten(0, 1)  # (few x width, joint)
        bias = self._first.bias.repeat(len(few))
        columns = []
        for many in torch.split(others, MANY):
            made = apply_linear(many, scaled, bias).view(len(many), len(few), -1)  # (many, few, width)
            columns.append(self.fused[1:](made).squeeze(2).t())
        return torch.cat(columns, 1)

    @property
    def _first(self) -> nn.Linear:
        first = self.fused[0]
        assert isinstance(first, nn.Linear)
        return first

    def _check_weights(self) -> None:
        if self._first.weight.is_meta:
            raise RunError(
                "encodings of a similarity_net cannot be scored without its weights; name the run that has them"
            )
