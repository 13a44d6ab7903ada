"""What ranks exchange in a training step, with gradients.

A tensor is either a rank's own, or common: the same on all ranks, and so is its gradient. Between the two there are

    gather   own rows     -> common rows    backward: each rank keeps the gradient of its rows
    scatter  common rows  -> own rows       backward: the gradients of all rows are gathered
    spread   common value -> the same       backward: the gradients of what each rank computed of it are summed
    total    own value    -> common sum     backward: the gradient is that of the sum

so everything that is computed of common tensors, such as an objective, is written as for one process. Reference:
Shoeybi et al. 2019 (Megatron-LM), section 3, which splits layers by such pairs of operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from diptych.ranks import Ranks


def gather(rows: Tensor, ranks: Ranks) -> Tensor:
    """The rows of all ranks, in the order of the ranks; zeros fill up sets that are smaller on some ranks."""
    gathered: Tensor = _Gather.apply(rows, ranks)  # type: ignore[no-untyped-call]
    return gathered


def scatter(rows: Tensor, ranks: Ranks) -> Tensor:
    """This rank's share of common rows."""
    own: Tensor = _Scatter.apply(rows, ranks)  # type: ignore[no-untyped-call]
    return own


def spread(value: Tensor, ranks: Ranks) -> Tensor:
    """A common value that each rank computes something else of."""
    common: Tensor = _Spread.apply(value, ranks)  # type: ignore[no-untyped-call]
    return common


def total(value: Tensor, ranks: Ranks) -> Tensor:
    """The sum of a value over all ranks."""
    common: Tensor = _Total.apply(value, ranks)  # type: ignore[no-untyped-call]
    return common


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks) -> Tensor:
        parts = ranks.gather(rows)
        begin = sum(len(part) for part in parts[: ranks.rank])
        ctx.own = (slice(begin, begin + len(rows)), *(slice(size) for size in rows.shape[1:]))
        return torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.own], None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return rows[ranks.share(len(rows))].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.cat(ctx.ranks.gather(grad)), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum_(grad.clone(memory_format=torch.contiguous_format)), None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        return ranks.sum_(value.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
