"""Keeps the copies of a model on all ranks one model: equal tensors at the start, and the sum of all gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from diptych.ranks import Ranks

BUCKET = 1 << 23  # numbers that are exchanged at once: 32 MB


def copy_first(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Replace tensors by those of the first rank, which other processors may have computed a little differently."""
    for tensor in tensors:
        ranks.broadcast_(tensor.data)


def sum_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
    """Replace each parameter's gradient by its sum over all ranks, each of which has computed a share of it."""
    for bucket in _buckets([_gradient(parameter) for parameter in parameters if parameter.requires_grad]):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            ranks.sum_(bucket[0])
            continue
        flat = ranks.sum_(torch.cat([gradient.flatten() for gradient in bucket]))
        for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def take_gradients_of_first(parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
    """Replace gradients that all ranks have computed alike by the first rank's, so that rounding cannot part them."""
    for parameter in parameters:
        ranks.broadcast_(_gradient(parameter))


def _gradient(parameter: nn.Parameter) -> Tensor:
    """A parameter's gradient, zeros if this rank has not used it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbouring gradients of one type, of a bucket's size together unless one alone is larger."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        full = sum(member.numel() for member in bucket) + gradient.numel() > BUCKET
        if bucket and (full or bucket[0].dtype != gradient.dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
