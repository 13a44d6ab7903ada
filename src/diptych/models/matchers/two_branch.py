"""The embedding network: one branch of layers per side, and the distance in the joint space as the score.

    s(x, y) = -d(x, y) = -|| f(x) - g(y) || = -sqrt(2 - 2 f(x) . g(y)),  all of length one

Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, section 3.2.
Needs: images for any image tower, or regions of photos; texts for any text tower.
When to use it: on stored features and a fitted text tower it trains in minutes, and its embeddings can be indexed. With
regions it finds phrases in a photo: a photo scores a phrase by its best region.
Relation to others: `similarity_net` has the same branches and learns the score, too. VSE is one linear layer per side;
its inner product ranks like the distance, but a margin means something else. `batch_norm = false` and one layer per
side are the paper's linear branches.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.models.matchers.branched import Branched, BranchSettings
from diptych.models.matchers.two_towers import best_products, best_products_of_pairs

# The squared distance of equal vectors, below what float32 can tell from zero here. The root's gradient is infinite at
# zero; below this value it is zero, so that equal vectors are not pushed apart in a random direction.
SMALLEST = 1e-12


class TwoBranchSettings(BranchSettings):
    """Towers and layers of an embedding network."""

    name: Literal["two_branch"] = "two_branch"

    def build(self) -> TwoBranch:
        """A matcher with random weights."""
        return TwoBranch(self)


class TwoBranch(Branched):
    """See the module docstring. Its parts are `image`, `image_branch`, `text` and `text_branch`."""

    def __init__(self, settings: TwoBranchSettings) -> None:
        super().__init__(settings)
        self.settings: TwoBranchSettings = settings

    @property
    def embedding_dim(self) -> int | None:
        """The size of the joint space if an image is one vector, else None."""
        return None if self.has_regions else self.settings.image_layers[-1]

    @property
    def compares_within_modality(self) -> bool:
        """Always: regions of images are compared one by one."""
        return True

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Minus the distance, or that of an image's nearest region: (images, texts)."""
        return -_distances(best_products(images, texts))

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return -_distances(best_products_of_pairs(images, texts))


def _distances(products: Tensor) -> Tensor:
    """The distances of unit vectors from their inner products."""
    return (2 - 2 * products).clamp(min=SMALLEST).sqrt()
