"""Exact cross attention between sets of unit vectors, without computing any attended vector.

Every query q of one side weighs the vectors c_k of the other side, its context, by their scores s_k = q . c_k, and is
compared with the attended vector v = sum_k a_k c_k:

    cos(q, v) = sum_k a_k s_k / sqrt(a^T G a),        G_kl = c_k . c_l

so that only the scores and the context's Gram matrix are needed. A common factor of the weights cancels: they need not
sum to one. The scores of many pairs are one matrix product; the passes after it work on blocks that fit into the cache.
Padding never counts: texts are grouped by their number of words, and missing regions are masked.
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

from diptych.models.layers.sets import Group, GroupedSets, as_one_group, count_order, group_by_count, present
from diptych.settings import Number

Direction = Literal["t2i", "i2t"]
Norm = Literal["clipped_l2norm", "clipped_l1norm", "clipped", "l2norm", "l1norm", "softmax", "none"]
PoolName = Literal["lse", "lme", "mean", "max", "sum"]
Focal = Literal["equal", "prob"]
Positive = Annotated[Number, Field(gt=0)]

TEXTS = 256  # texts per matrix product
PRODUCT = 1 << 23  # scores per matrix product
BLOCK = 1 << 19  # scores per block in the passes after it: 2 MB
SMALLEST = 1e-24  # the smallest squared length to divide by; below it gradients overflow in float32
TIE = 1e-5  # a weight below the mean by less than this, relatively, counts as equal to it
STEEP = 24  # above this smoothness squared weights could come close to SMALLEST


@dataclass(frozen=True)
class Attention:
    """How weights are computed from scores, and scores of sets from cosines.

    Scores are normalised over the queries, `smooth` sharpens the softmax over the context, and `focal` keeps, for each
    query, the context with a weight above the mean (`equal`), or above the mean weighted by the root of the weights
    (`prob`). If none would be kept, as with a single vector or equal weights, all are. `pool` reduces the cosines of
    all queries to one score; `lse` is the sharpness of log(sum exp(lse c)) / lse, which grows with the number of
    queries, and of the pool `lme`, log(mean exp(lse c)) / lse, which does not.
    """

    norm: Norm = "clipped_l2norm"
    smooth: float = 9.0
    focal: Focal | None = None
    pool: PoolName = "lse"
    lse: float = 6.0

    def score(self, images: Tensor, texts: Tensor, *directions: Direction) -> Tensor:
        """The scores of all images and all texts, summed over the directions: (images, texts)."""
        order = count_order(texts)
        columns = []
        for some in _pieces(order, TEXTS):
            words = group_by_count(texts, some)
            height = PRODUCT // (images.shape[1] * len(words.vectors))
            parts = [self._tile(as_one_group(part), words, directions) for part in _pieces(images, height)]
            columns.append(torch.cat(parts))
        return torch.cat(columns, 1).index_select(1, order.argsort())

    def score_pairs(self, images: Tensor, texts: Tensor, *directions: Direction) -> Tensor:
        """The scores of image k and text k, summed over the directions: (pairs,)."""
        order = count_order(texts)
        words = group_by_count(texts, order)
        parts = []
        for rows, text in zip(order.split_with_sizes(words.items), words.groups, strict=True):
            image = as_one_group(images.index_select(0, rows)).groups[0]
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
        """The attention weights of one image and one text, for display: (queries, context), with rows that sum to one.

        t2i gives (words, regions) and i2t (regions, words); rows and columns of empty places are zero.
        """
        queries, context = (text, image) if direction == "t2i" else (image, text)
        has_query, has_context = present(queries[None])[0], present(context[None])[0]
        scores = (context[has_context] @ queries[has_query].t())[None, :, :, None]  # (1, context, queries, 1)
        weights = self._weights(scores, None, None)[0, :, :, 0].t()
        shown = scores.new_zeros(len(queries), len(context))
        shown[has_query[:, None] & has_context] = (weights / weights.sum(1, keepdim=True)).flatten()
        return shown

    def _tile(self, regions: GroupedSets, words: GroupedSets, directions: Sequence[Direction]) -> Tensor:
        """The scores of some images and some texts: (images, texts)."""
        if directions == ("i2t",):
            return self._attend(words.vectors @ regions.vectors.t(), words, regions).t()
        product = regions.vectors @ words.vectors.t()  # (regions, words)
        scores = self._attend(product, regions, words)
        if "i2t" in directions:
            scores = scores + self._attend(product.t().contiguous(), words, regions).t()
        return scores

    def _attend(self, product: Tensor, contexts: GroupedSets, queries: GroupedSets) -> Tensor:
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
        """The cosine of each query with its attended vector: (sets, queries, items)."""
        weights = self._weights(scores, contexts, queries)
        squared = _times(torch.bmm(gram, weights.flatten(2)).view(weights.shape), weights).sum(1)
        along = _times(weights, scores).sum(1)
        return along * squared.clamp(min=SMALLEST).rsqrt()

    def _weights(self, scores: Tensor, contexts: Tensor | None, queries: Tensor | None) -> Tensor:
        """Weights up to one factor per query: (sets, context, queries, items), like the scores."""
        scaled = self._normed(scores, queries)
        if contexts is not None:
            scaled = scaled.masked_fill_(~contexts, -torch.inf)
        if self.smooth > STEEP:
            largest = scaled.detach().amax(1, keepdim=True)
            scaled = scaled - largest.clamp(min=torch.finfo(scaled.dtype).min)  # an image may have no regions
        weights = scaled.exp2_()
        return weights if self.focal is None else _times(weights, self._kept(weights.detach(), contexts))

    def _normed(self, scores: Tensor, queries: Tensor | None) -> Tensor:
        """The scores normalised over the queries, times the smoothness, for exp2, which is twice as fast as exp."""
        smooth = self.smooth / math.log(2)
        if self.norm == "softmax":
            return (scores if queries is None else scores.masked_fill(~queries, -torch.inf)).softmax(2) * smooth
        times: Callable[[Tensor, Tensor], Tensor] = torch.mul  # not in place: the scores are needed again
        if self.norm.startswith("clipped"):
            scores, times = leaky_relu(scores, 0.1), _times
        if self.norm.endswith("l2norm"):
            return times(scores, scores.square().sum(2, keepdim=True).clamp(min=SMALLEST).rsqrt() * smooth)
        if self.norm.endswith("l1norm"):
            return times(scores, smooth / scores.abs().sum(2, keepdim=True).clamp(min=SMALLEST))
        return scores * smooth

    def _kept(self, weights: Tensor, contexts: Tensor | None) -> Tensor:
        """1 where the focus keeps a weight, else 0."""
        if self.focal == "equal":
            number = weights.shape[1] if contexts is None else contexts.sum(1, keepdim=True)
            mean = weights.sum(1, keepdim=True) / number
        else:
            roots = weights.sqrt()
            mean = (weights * roots).sum(1, keepdim=True) / roots.sum(1, keepdim=True)
        # Floats are many times faster here than booleans.
        return torch.gt(weights, mean * (1 - TIE), out=torch.empty_like(weights))

    def _pooled(self, cosines: Tensor, queries: Tensor | None) -> Tensor:
        """Pool (sets, queries, items) to (sets, items), over the queries that are present."""
        if queries is not None:
            beside = 0 if self.pool in ("mean", "sum") else -torch.inf
            cosines = cosines.masked_fill(~queries.squeeze(1), beside)
        if self.pool == "lse":
            return (cosines * self.lse).logsumexp(1) / self.lse
        if self.pool == "max":
            return cosines.amax(1)
        if self.pool == "sum":
            return cosines.sum(1)
        count = _count(cosines, queries)
        if self.pool == "lme":
            return ((cosines * self.lse).logsumexp(1) - count.log()) / self.lse
        return cosines.sum(1) / count


def _count(cosines: Tensor, queries: Tensor | None) -> Tensor:
    """The number of queries of each item, at least 1; it broadcasts to (sets, items)."""
    if queries is None:
        return cosines.new_tensor(cosines.shape[1])
    return queries.sum(2).squeeze(1).clamp(min=1).to(cosines.dtype)


def _times(values: Tensor, factors: Tensor) -> Tensor:
    """The product, in place if no gradient needs the values: such passes are limited by memory bandwidth."""
    return values * factors if torch.is_grad_enabled() else values.mul_(factors)


def _pieces(values: Tensor, size: int) -> tuple[Tensor, ...]:
    """Pieces of at least one and at most `size` rows."""
    size = max(1, size)
    return values.split_with_sizes([min(size, len(values) - start) for start in range(0, len(values), size)])
