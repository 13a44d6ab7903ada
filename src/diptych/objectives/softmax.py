"""Softmax cross-entropy over very many classes, and whether each item is misclassified.

    l_i = -log( exp(z_iy) / sum_c exp(z_ic) ),  z_ic = w_c f_i + b_c,  y the class of item i

The logits of 128 items and 113,287 classes take 58 MB, and training holds them several times over. With `at_once`, the
classes are computed in blocks, in the forward pass and again in the backward pass, and only one block is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear


def class_losses(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    correction: Tensor | None = None,
    at_once: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each item, (items,), and whether it is classified wrongly, (items,) without a gradient.

    `features` are (items, size), `weight` is (classes, size), `bias` and `correction` are (classes,) and are added to
    the logits. A tie with another class counts as wrong. With `at_once`, that many classes are computed at a time, with
    the same values and gradients. Half precision inputs are computed in single precision.
    """
    precise = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)
    features = features.to(precise)
    added = [each.to(precise) for each in (bias, correction) if each is not None]
    offset = added[0] + added[1] if len(added) == 2 else added[0] if added else None
    if at_once is not None and at_once < len(weight):
        found: tuple[Tensor, Tensor] = _InBlocks.apply(features, weight, offset, labels, at_once)  # type: ignore[no-untyped-call]
        return found
    logits = linear(features, weight.to(precise), offset)  # (items, classes)
    with torch.no_grad():
        true = logits.gather(1, labels[:, None])
        wrong = (logits >= true).sum(1) != 1  # the true class must be the only one this high
    return cross_entropy(logits, labels, reduction="none"), wrong


class _InBlocks(torch.autograd.Function):
    """Cross-entropy that computes each block's logits twice instead of keeping them."""

    @staticmethod
    def forward(
        context: Any, features: Tensor, weight: Tensor, offset: Tensor | None, labels: Tensor, at_once: int
    ) -> tuple[Tensor, Tensor]:
        # The sum of exponentials is relative to the largest logit so far: nothing overflows, and large logits lose no
        # digits.
        highest = features.new_full((len(features),), torch.finfo(features.dtype).min)
        other = highest.new_full(highest.shape, -torch.inf)  # the largest logit of a wrong class
        true = highest.new_full(highest.shape, torch.nan)
        total = torch.zeros_like(highest)
        for block, logits in _blocks(features, weight, offset, at_once):
            rows, columns = _labels_in(labels, block)
            raised = torch.maximum(highest, logits.amax(1))
            total.mul_((highest - raised).exp_())
            highest = raised
            true[rows] = logits[rows, columns]
            logits[rows, columns] = -torch.inf
            other = torch.maximum(other, logits.amax(1))
            total.add_(logits.sub_(highest[:, None]).exp_().sum(1))
        total.add_((true - highest).exp_())
        wrong = ~(true > other)
        context.save_for_backward(features, weight, offset, labels, highest, total)
        context.at_once = at_once
        context.mark_non_differentiable(wrong)
        return highest - true + total.log(), wrong

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, offset, labels, highest, total = context.saved_tensors
        needs_features, needs_weight, needs_offset = context.needs_input_grad[:3]
        by_features = torch.zeros_like(features) if needs_features else None
        by_weight = features.new_empty(weight.shape) if needs_weight else None
        by_offset = torch.empty_like(offset) if needs_offset else None
        share = (gradient / total)[:, None]
        for block, logits in _blocks(features, weight, offset, context.at_once):
            slopes = logits.sub_(highest[:, None]).exp_().mul_(share)  # (items, block): probability x gradient
            rows, columns = _labels_in(labels, block)
            slopes[rows, columns] -= gradient[rows]
            if by_features is not None:
                by_features.addmm_(slopes, weight[block].to(features.dtype))
            if by_weight is not None:
                torch.mm(slopes.t(), features, out=by_weight[block])
            if by_offset is not None:
                by_offset[block] = slopes.sum(0)
        return by_features, None if by_weight is None else by_weight.to(weight.dtype), by_offset, None, None


def _blocks(features: Tensor, weight: Tensor, offset: Tensor | None, at_once: int) -> Iterator[tuple[slice, Tensor]]:
    """Each block of classes and its logits, (items, block), which the caller may overwrite."""
    for start in range(0, len(weight), at_once):
        block = slice(start, min(start + at_once, len(weight)))
        logits = linear(features, weight[block].to(features.dtype), None if offset is None else offset[block])
        yield block, logits


def _labels_in(labels: Tensor, block: slice) -> tuple[Tensor, Tensor]:
    """The items whose class is in a block, and its column in the block."""
    rows = ((labels >= block.start) & (labels < block.stop)).nonzero().squeeze(1)
    return rows, labels[rows] - block.start
