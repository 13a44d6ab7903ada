"""Keeps the copies of a model on all ranks one model: equal tensors at the start, and the sum of all gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from diptych.ranks import Ranks

BUCKET = 1 << 20  # numbers that are copied together and exchanged at once: 4 MB
TABLE = 1 << 18  # numbers of a matrix whose unused rows are looked for


def copy_first(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Replace tensors by those of the first rank, which other processors may have computed a little differently."""
    for tensor in tensors:
        ranks.broadcast_(tensor.data)


def sum_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
    """Replace each parameter's gradient by its sum over all ranks, each of which has computed a share of it.

    Of a table of which a batch uses less than half of the rows, such as word vectors, only those are exchanged.
    """
    gradients = [_gradient(parameter) for parameter in parameters if parameter.requires_grad]
    rows = _used_rows(gradients, ranks)
    exchanged = [gradient if used is None else gradient[used] for gradient, used in zip(gradients, rows, strict=True)]
    _sum_all(exchanged, ranks)
    for gradient, used, summed in zip(gradients, rows, exchanged, strict=True):
        if used is not None:
            gradient[used] = summed


def _sum_all(tensors: Sequence[Tensor], ranks: Ranks) -> None:
    """Replace tensors by their sums over all ranks, a bucket at a time."""
    for bucket in _buckets(tensor for tensor in tensors if tensor.numel()):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            ranks.sum_(bucket[0])
            continue
        flat = ranks.sum_(torch.cat([tensor.flatten() for tensor in bucket]))
        for tensor, summed in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(summed.view_as(tensor))


def _used_rows(gradients: Sequence[Tensor], ranks: Ranks) -> list[Tensor | None]:
    """The rows of each gradient that are not zero on every rank, or None if these are most of them."""
    tables = [gradient for gradient in gradients if gradient.dim() == 2 and gradient.numel() >= TABLE]
    if not tables:
        return [None] * len(gradients)
    masks = ranks.sum_(torch.cat([_has_values(table) for table in tables])).split([len(table) for table in tables])
    used = {id(table): mask.nonzero()[:, 0] for table, mask in zip(tables, masks, strict=True)}
    rows = [used.get(id(gradient)) for gradient in gradients]
    return [
        None if own is None or 2 * len(own) > len(gradient) else own
        for gradient, own in zip(gradients, rows, strict=True)
    ]


def _has_values(table: Tensor) -> Tensor:
    """1 for the rows that are not zero; for all rows, without looking at them, if the first column says so of most."""
    if 2 * int(table[:, 0].count_nonzero()) > len(table):
        return torch.ones(len(table), dtype=torch.int32, device=table.device)
    return table.any(1).int()


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
