"""Normalised canonical correlation analysis: the linear maps in which images and texts of a pair correlate most.

    maximise  corr(P_x^T x, P_y^T y):   (S_xx + r_x I)^-1/2 S_xy (S_yy + r_y I)^-1/2 = A D B^T
    f(x) = L2( (1 + D)^p A^T (S_xx + r_x I)^-1/2 (x - mean) ),  g(y) likewise with B,  s(x, y) = f(x) . g(y)

D holds the canonical correlations. "Normalised" means that each direction is weighted by a power of its eigenvalue,
1 + its correlation, besides the cosine (Gong et al. 2014, with p = 4). The ridge r is `regularisation` times a side's
mean variance. Results depend on it more than on anything else, so it is chosen on val: all ridges are solved for from
the covariances of one pass over the data.

Reference: Gong, Ke, Isard, Lazebnik 2014, A Multi-View Embedding Space for Modeling Internet Images, Tags, and Their
Semantics, IJCV; as a baseline in Klein, Lev, Sadeh, Wolf 2015, Associating Neural Word Embeddings with Deep Image
Representations using Fisher Vectors, CVPR.
Needs: towers that are not trained, such as stored features and a fitted text tower; a stage with `correlation`.
When to use it: as the strong baseline of the two-branch papers. It takes one pass over the pairs. The covariances grow
with the square of the vectors' size, and not with the data.
Relation to others: the linear `two_branch` has the same form and is trained by ranking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.models.layers.sets import present
from diptych.models.matcher import Solution
from diptych.models.matchers.two_towers import TwoTowers, TwoTowerSettings, best_products, best_products_of_pairs
from diptych.models.tower import Tokens
from diptych.settings import Count, Number


def _one_or_more(ridges: Any) -> Any:
    """A single ridge as a list of one."""
    return ridges if isinstance(ridges, list | tuple) else (ridges,)


Ridges = Annotated[tuple[Annotated[Number, Field(ge=0)], ...], BeforeValidator(_one_or_more), Field(min_length=1)]


class CCASettings(TwoTowerSettings):
    """Towers, the number of directions (`joint`), the ridges relative to the mean variance, and the power.

    `regularisation` is one ridge, or several, of which the best on val is kept.
    """

    name: Literal["cca"] = "cca"
    joint: Count = 512
    regularisation: Ridges = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    power: Annotated[Number, Field(ge=0)] = 4.0

    def build(self) -> CCA:
        """A fresh matcher, to be solved."""
        return CCA(self)


class CCA(TwoTowers):
    """See the module docstring. Its parts are `image_projection` and `text_projection`.

    `accumulate` adds a batch of pairs, and `solutions` computes projections from all of them.
    """

    correlations: Tensor
    image_mean: Tensor
    text_mean: Tensor

    def __init__(self, settings: CCASettings) -> None:
        super().__init__(settings)
        self.settings: CCASettings = settings
        self.image_projection = _projection(self.image.size, settings.joint)
        self.text_projection = _projection(self.text.size, settings.joint)
        self.register_buffer("image_mean", torch.zeros(self.image.size))
        self.register_buffer("text_mean", torch.zeros(self.text.size))
        self.register_buffer("correlations", torch.zeros(settings.joint))
        self._moments: Moments | None = None

    @property
    def embedding_dim(self) -> int | None:
        """The number of directions if an image is one vector, else None."""
        return None if self.has_regions else self.settings.joint

    @property
    def solves_in_closed_form(self) -> bool:
        """Always."""
        return True

    @torch.no_grad()
    def accumulate(self, images: Tensor, tokens: Tokens, image_of: Tensor, text_of: Tensor) -> None:
        """Add the pairs of a batch, as the towers encode them."""
        self.accumulate_vectors(self.image(images)[image_of], self.text(tokens)[text_of])

    def accumulate_vectors(self, images: Tensor, texts: Tensor) -> None:
        """Add pairs of the towers' vectors, (pairs, size) per side."""
        if self._moments is None:
            self._moments = Moments.none(images.shape[1], texts.shape[1])
        self._moments.add(images, texts)

    def solutions(self) -> Iterable[Solution]:
        """Means and projections for each ridge, in ascending order; the covariances are kept until the last of them."""
        moments, self._moments = self._moments, None
        if moments is None or moments.pairs < 2:
            raise RecipeError("cca: fewer than two pairs to solve for; add training pairs")
        return (self._solution(moments, ridge) for ridge in sorted(self.settings.regularisation))

    @torch.no_grad()
    def _solution(self, moments: Moments, ridge: float) -> Solution:
        found = canonical(moments, ridge)
        joint, rank = self.settings.joint, len(found.correlations)
        if joint > rank:
            raise RecipeError(
                f"model.joint = {joint}: images and texts of the {moments.pairs} training pairs correlate in {rank} "
                f"directions only; set model.joint = {rank} or less"
            )
        directions = (1 + found.correlations[:joint]) ** self.settings.power
        weights = {
            "image_projection.weight": (found.images[:, :joint] * directions).t(),
            "text_projection.weight": (found.texts[:, :joint] * directions).t(),
            "image_mean": moments.image_mean,
            "text_mean": moments.text_mean,
            "correlations": found.correlations[:joint],
        }
        return Solution("regularisation", ridge, weights)

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images: (images, joint), or (images, regions, joint) with zeros for missing regions."""
        vectors: Tensor = self.image(images)
        joint = normalize(self.image_projection(vectors - self.image_mean), dim=-1)
        return joint if joint.dim() == 2 else joint * present(vectors)[:, :, None]

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts: (texts, joint)."""
        return normalize(self.text_projection(self.text(tokens) - self.text_mean), dim=1)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine, or that of an image's best region: (images, texts)."""
        return best_products(images, texts)

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return best_products_of_pairs(images, texts)


@dataclass
class Moments:
    """The means of all pairs so far and the sums of products around them, in float64 on the CPU."""

    pairs: int
    image_mean: Tensor
    text_mean: Tensor
    images: Tensor  # (size, size)
    texts: Tensor
    across: Tensor  # (image size, text size)

    @classmethod
    def none(cls, images: int, texts: int) -> Moments:
        """The moments of no pairs, for vectors of these sizes."""
        zeros = partial(torch.zeros, dtype=torch.float64, device="cpu")
        return cls(0, zeros(images), zeros(texts), zeros(images, images), zeros(texts, texts), zeros(images, texts))

    @torch.no_grad()
    def add(self, images: Tensor, texts: Tensor) -> None:
        """Add pairs: a block is centred by itself and then merged, so that large means cost no precision."""
        pairs = len(images)
        if pairs == 0:
            return
        images, texts = (side.detach().to("cpu", torch.float64) for side in (images, texts))
        means = images.mean(0), texts.mean(0)
        images, texts = images - means[0], texts - means[1]
        shifts = means[0] - self.image_mean, means[1] - self.text_mean
        share = pairs / (self.pairs + pairs)
        for total, left, right, shift in (
            (self.images, images, images, (shifts[0], shifts[0])),
            (self.texts, texts, texts, (shifts[1], shifts[1])),
            (self.across, images, texts, shifts),
        ):
            total.addmm_(left.t(), right).addr_(*shift, alpha=self.pairs * share)
        self.image_mean += share * shifts[0]
        self.text_mean += share * shifts[1]
        self.pairs += pairs


@dataclass(frozen=True)
class Canonical:
    """The directions of each side as columns, and their correlations, largest first, without those that are zero."""

    images: Tensor
    texts: Tensor
    correlations: Tensor


def canonical(moments: Moments, regularisation: float) -> Canonical:
    """The canonical directions: each has variance one, ridge included, and correlates only with its counterpart."""
    image_root = _root(moments.images / moments.pairs, regularisation, "images'")
    text_root = _root(moments.texts / moments.pairs, regularisation, "texts'")
    half = torch.linalg.solve_triangular(image_root, moments.across / moments.pairs, upper=False)
    whitened = torch.linalg.solve_triangular(text_root, half.t(), upper=False).t()
    left, correlations, right = torch.linalg.svd(whitened, full_matrices=False)
    # Rounding errors of a covariance are divided by the ridge: directions below this have no variance at all.
    rounding = torch.finfo(torch.float64).eps
    noise = max(whitened.shape) * rounding / max(regularisation, rounding**0.5)
    rank = int((correlations > noise).sum())
    return Canonical(
        torch.linalg.solve_triangular(image_root.t(), left[:, :rank], upper=True),
        torch.linalg.solve_triangular(text_root.t(), right.t()[:, :rank], upper=True),
        correlations[:rank],
    )


def _root(covariance: Tensor, regularisation: float, whose: str) -> Tensor:
    """The Cholesky root of a covariance with its ridge."""
    diagonal = covariance.diagonal()
    diagonal += regularisation * diagonal.mean()
    root: Tensor
    root, failed = torch.linalg.cholesky_ex(covariance)
    if failed:
        raise RecipeError(
            f"model.regularisation = {regularisation:g}: the {whose} covariance has no inverse; "
            "raise it, such as to 1e-4"
        )
    return root


def _projection(inputs: int, outputs: int) -> nn.Linear:
    """A random linear map without a bias."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer
