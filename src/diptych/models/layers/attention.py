"""Cross attention between sets of vectors of length one, exact and without ever forming an attended vector.

Every query q of one side weighs the vectors c_k of the other side, its context, by their scores s_k = q . c_k, and is
compared with the attended vector v = sum_k a_k c_k:

    cos(q, v) = sum_k a_k s_k / sqrt(a^T G a),        G_kl = c_k . c_l

so that the scores and the context's Gram matrix are all it needs, and a common factor of the weights cancels: they need
not sum to one. The scores of many pairs are one matrix product; what follows goes over blocks that lie in a cache.
Vectors that are not there never count: texts are taken together by their number of words, and missing regions masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import leaky_relu

from diptych.models.layers.sets import Arranged, Group, by_count, grouped, present, whole
from diptych.settings import Number

Direction = Literal["t2i", "i2t"]
Norm = Literal["clipped_l2norm", "clipped_l1norm", "clipped", "l2norm", "l1norm", "softmax", "none"]
PoolName = Literal["lse", "mean", "max", "sum"]
Focal = Literal["equal", "prob"]
Positive = Annotated[Number, Field(gt=0)]

TEXTS = 256  # texts of one matrix product
PRODUCT = 1 << 23  # scores of one matrix product
BLOCK = 1 << 19  # scores that the passes after it take at once: 2 MB
SMALLEST = 1e-24  # squared length of what is divided by; below it even the gradients of float32 overflow
TIE = 1e-5  # what lies below the mean by less, relatively, does so by rounding, and is as good as above it
STEEP = 24  # a smoothness beyond which the weights' squares could come close to that


@dataclass(frozen=True)
class Attention:
    """How weights follow from scores, and scores of sets from cosines.

    Scores are normed over the queries, `smooth` sharpens the softmax over the context, and `focal` keeps, for each
    query, the context that weighs more than the mean (`equal`), or more than the mean where each counts with the root
    of its weight (`prob`). Where none would be kept, as of a single one or of equal ones, all are. `pool` makes one
    score of the cosines of all queries; `lse` is the sharpness of log(sum exp(lse c)) / lse.
    """

    norm: Norm = "clipped_l2norm"
    smooth: float = 9.0
    focal: Focal | None = None
    pool: PoolName = "lse"
    lse: float = 6.0

    def score(self, images: Tensor, texts: Tensor, *directions: Direction) -> Tensor:
        """The scores of all images and all texts, summed over the directions: (images, texts)."""
        order = by_count(texts)
        columns = []
        for some in _pieces(order, TEXTS):
            words = grouped(texts, some)
            height = PRODUCT // (images.shape[1] * len(words.vectors))
            parts = [self._tile(whole(part), words, directions) for part in _pieces(images, height)]
            columns.append(torch.cat(parts))
        return torch.cat(columns, 1).index_select(1, order.argsort())

    def score_pairs(self, images: Tensor, texts: Tensor, *directions: Direction) -> Tensor:
        """The scores of image k and text k, summed over the directions: (pairs,)."""
        order = by_count(texts)
        words = grouped(texts, order)
        parts = []
        for rows, text in zip(order.split_with_sizes(words.items), words.groups, strict=True):
            image = whole(images.index_select(0, rows)).groups[0]
            product = image.vectors.transpose(0, 1) @ text.vectors.permute(1, 2, 0)  # (pairs, regions, words)
            there = None if image.there is None else image.there.t()  # (pairs, regions)
            scores = []
            if "t2i" in directions:
                contexts = None if there is None else there[:, :, None, None]
                scores.append(self._block(product[..., None], image.gram(), contexts, None))
            if "i2t" in directions:
                queries = None if there is None else there[:, None, :, None]
                scores.append(self._block(product.mT[..., None], text.gram(), None, queries))
            parts.append(sum(scores[1:], scores[0]).squeeze(1))
        return torch.cat(parts).index_select(0, order.argsort())

    def weights(self, image: Tensor, text: Tensor, direction: Direction) -> Tensor:
        """What each query of one image and one text attends to, to be looked at: (queries, context), summing to one.

        t2i gives (words, regions) and i2t (regions, words); a row or a column of an empty place is zero.
        """
        queries, context = (text, image) if direction == "t2i" else (image, text)
        asked, answering = present(queries[None])[0], present(context[None])[0]
        scores = (context[answering] @ queries[asked].t())[None, :, :, None]  # (1, context, queries, 1)
        weights = self._weights(scores, None, None)[0, :, :, 0].t()
        shown = scores.new_zeros(len(queries), len(context))
        shown[asked[:, None] & answering] = (weights / weights.sum(1, keepdim=True)).flatten()
        return shown

    def _tile(self, regions: Arranged, words: Arranged, directions: Sequence[Direction]) -> Tensor:
        """The scores of some images and some texts: (images, texts)."""
        if directions == ("i2t",):
            return self._attend(words.vectors @ regions.vectors.t(), words, regions).t()
        product = regions.vectors @ words.vectors.t()  # (regions, words)
        scores = self._attend(product, regions, words)
        if "i2t" in directions:
            scores = scores + self._attend(product.t().contiguous(), words, regions).t()
        return scores

    def _attend(self, product: Tensor, contexts: Arranged, queries: Arranged) -> Tensor:
        """Scores of sets from the products of their vectors: (items of contexts, items of queries)."""
        rows = []
        for wide, context in zip(product.split_with_sizes(contexts.sizes), contexts.groups, strict=True):
            columns = []
            for scores, query in zip(wide.split_with_sizes(queries.sizes, 1), queries.groups, strict=True):
                shape = (*context.vectors.shape[:2], *query.vectors.shape[:2])
                columns.append(self._between(scores.view(shape).transpose(0, 1), context, query))
            rows.append(torch.cat(columns, 1))
        return torch.cat(rows)

    def _between(self, scores: Tensor, context: Group, query: Group) -> Tensor:
        """Scores of sets from (context items, context, queries, query items), block by block."""
        size = BLOCK // scores[0].numel()
        queries = None if query.there is None else query.there[None, None]
        blocks = zip(_pieces(scores, size), _pieces(context.gram(), size), strict=True)
        if context.there is None:
            return torch.cat([self._block(*block, None, queries) for block in blocks])
        contexts = _pieces(context.there.t()[:, :, None, None], size)
        return torch.cat([self._block(*block, there, queries) for block, there in zip(blocks, contexts, strict=True)])

    def _block(self, scores: Tensor, gram: Tensor, contexts: Tensor | None, queries: Tensor | None) -> Tensor:
        """(sets, context, queries, items) to (sets, items)."""
        return self._pooled(self._cosines(scores, gram, contexts, queries), queries)

    def _cosines(self, scores: Tensor, gram: Tensor, contexts: Tensor | None, queries: Tensor | None) -> Tensor:
        """The cosine of each query with what it attends to: (sets, queries, items)."""
        weights = self._weights(scores, contexts, queries)
        squared = _times(torch.bmm(gram, weights.flatten(2)).view(weights.shape), weights).sum(1)
        along = _times(weights, scores).sum(1)
        return along * squared.clamp(min=SMALLEST).rsqrt()

    def _weights(self, scores: Tensor, contexts: Tensor | None, queries: Tensor | None) -> Tensor:
        """Weights up to a factor a query: (sets, context, queries, items), as the scores."""
        scaled = self._normed(scores, queries)
        if contexts is not None:
            scaled = scaled.masked_fill_(~contexts, -torch.inf)
        if self.smooth > STEEP:
            largest = scaled.detach().amax(1, keepdim=True)
            scaled = scaled - largest.clamp(min=torch.finfo(scaled.dtype).min)  # an image may have no region at all
        weights = scaled.exp2_()
        return weights if self.focal is None else _times(weights, self._kept(weights.detach(), contexts))

    def _normed(self, scores: Tensor, queries: Tensor | None) -> Tensor:
        """The scores normed over the queries, times the smoothness, as powers of two: exp2 is twice as fast as exp."""
        smooth = self.smooth / math.log(2)
        if self.norm == "softmax":
            return (scores if queries is None else scores.masked_fill(~queries, -torch.inf)).softmax(2) * smooth
        times: Callable[[Tensor, Tensor], Tensor] = torch.mul  # of scores that are needed once more
        if self.norm.startswith("clipped"):
            scores, times = leaky_relu(scores, 0.1), _times
        if self.norm.endswith("l2norm"):
            return times(scores, scores.square().sum(2, keepdim=True).clamp(min=SMALLEST).rsqrt() * smooth)
        if self.norm.endswith("l1norm"):
            return times(scores, smooth / scores.abs().sum(2, keepdim=True).clamp(min=SMALLEST))
        return scores * smooth

    def _kept(self, weights: Tensor, contexts: Tensor | None) -> Tensor:
        """Ones where the focus keeps a weight, else zeros."""
        if self.focal == "equal":
            number = weights.shape[1] if contexts is None else contexts.sum(1, keepdim=True)
            mean = weights.sum(1, keepdim=True) / number
        else:
            roots = weights.sqrt()
            mean = (weights * roots).sum(1, keepdim=True) / roots.sum(1, keepdim=True)
        # As numbers of the same kind it is many times faster than with truth values.
        return torch.gt(weights, mean * (1 - TIE), out=torch.empty_like(weights))

    def _pooled(self, cosines: Tensor, queries: Tensor | None) -> Tensor:
        """(sets, queries, items) to (sets, items), over the queries that are there."""
        if queries is not None:
            beside = -torch.inf if self.pool in ("lse", "max") else 0
            cosines = cosines.masked_fill(~queries.squeeze(1), beside)
        if self.pool == "lse":
            return (cosines * self.lse).logsumexp(1) / self.lse
        if self.pool == "max":
            return cosines.amax(1)
        total = cosines.sum(1)
        if self.pool == "sum":
            return total
        return total / (cosines.shape[1] if queries is None else queries.sum(2).squeeze(1))


def _times(values: Tensor, factors: Tensor) -> Tensor:
    """The product, in place where no gradient needs what was there: memory is what such passes wait for."""
    return values * factors if torch.is_grad_enabled() else values.mul_(factors)


def _pieces(values: Tensor, size: int) -> tuple[Tensor, ...]:
    """Pieces of at least one and at most `size` rows."""
    size = max(1, size)
    return values.split_with_sizes([min(size, len(values) - start) for start in range(0, len(values), size)])
