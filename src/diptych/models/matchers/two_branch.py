"""The embedding network: a branch of layers a side, and the distance in the joint space as the score.

    s(x, y) = -d(x, y) = -|| f(x) - g(y) || = -sqrt(2 - 2 f(x) . g(y)),  all of length one

Reference: Wang, Li, Lazebnik 2018, Learning Two-Branch Neural Networks for Image-Text Matching Tasks, section 3.2.
Needs: images as any image tower reads them, or a photo's regions; texts as tokens, or as a fitted tower makes them.
When to use it: on stored features and fitted text vectors it trains in minutes, and its embeddings can be indexed. With
regions it finds phrases in a photo: a photo scores a phrase by its best region.
Relation to others: `similarity_net` has the same branches and learns the score too. VSE is one linear layer a side, and
its inner product orders answers as the distance does; a margin means something else in either. `batch_norm = false`
and one layer a side are the paper's linear branches.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from diptych.models.layers.branch import Branched, BranchSettings
from diptych.models.matchers.two_towers import best_products, best_products_of_pairs

# The squared distance of what coincides. Below the smallest that float32 tells from zero here; the root's gradient is
# infinite at zero, and is cut off to zero from here on: what coincides is pushed nowhere.
SMALLEST = 1e-12


class TwoBranchSettings(BranchSettings):
    """Towers and layers of an embedding network."""

    name: Literal["two_branch"] = "two_branch"

    def build(self) -> TwoBranch:
        """A fresh matcher."""
        return TwoBranch(self)


class TwoBranch(Branched):
    """See the module's description; a stage can name the parts `image`, `image_branch`, `text` and `text_branch`."""

    def __init__(self, settings: TwoBranchSettings) -> None:
        super().__init__(settings)
        self.settings: TwoBranchSettings = settings

    @property
    def embedding_dim(self) -> int | None:
        """The size of the joint space, where an image is one vector in it."""
        return None if self.has_regions else self.settings.image_layers[-1]

    @property
    def compares_within_modality(self) -> bool:
        """Always: regions of images are compared one by one."""
        return True

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """Minus the distance, of an image with regions that of its nearest: (images, texts)."""
        return -_distances(best_products(images, texts))

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same of image k and text k: (pairs,)."""
        return -_distances(best_products_of_pairs(images, texts))


def _distances(products: Tensor) -> Tensor:
    """The distances of vectors of length one from their products."""
    return (2 - 2 * products).clamp(min=SMALLEST).sqrt()
