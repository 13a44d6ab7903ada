"""Batch norm of rows that may count several times, and whose batch may be spread over several ranks.

    y = weight (x - mean) / sqrt(variance + eps) + bias        (Ioffe & Szegedy 2015, Algorithm 1)

A single row in training uses the running statistics, because its variance would be zero. Statistics are computed in at
least single precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from diptych.models.layers.precision import at_least_float32, without_autocast
from diptych.ranks import ALONE, Ranks


class JointBatchNorm(nn.BatchNorm1d):
    """Batch norm of (rows, channels, ...) over the batch of all ranks, with its gradients.

    It takes over the parameters and the statistics of another layer, under the same names.
    """

    def __init__(self, layer: _BatchNorm, ranks: Ranks) -> None:
        super().__init__(layer.num_features, layer.eps, layer.momentum, layer.affine)
        self.ranks = ranks
        self._parameters, self._buffers = layer._parameters, layer._buffers
        self.train(layer.training)

    def _check_input_dim(self, input: Tensor) -> None:
        return

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each channel."""
        if not self.training:
            return super().forward(input)
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        values = input.transpose(1, -1)  # (rows, ..., channels)
        rows = values.reshape(-1, self.num_features)
        normalised = weighted_norm(self, rows, torch.ones(len(rows), device=rows.device), len(rows))
        return normalised.view(values.shape).transpose(1, -1)


def join_batch_norms(module: nn.Module, ranks: Ranks) -> None:
    """Replace the batch norms of a model by those of all ranks, under the same names."""
    if ranks.count == 1:
        return
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, _BatchNorm) and not isinstance(layer, JointBatchNorm):
                setattr(parent, name, JointBatchNorm(layer, ranks))


def normed(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    """Batch norm of (rows, channels)."""
    if norm.training and len(rows) < 2 and not isinstance(norm, JointBatchNorm):
        return _by_running_statistics(norm, rows)
    out: Tensor = norm(rows)
    return out


def weighted_norm(norm: nn.BatchNorm1d, rows: Tensor, counts: Tensor, count: int) -> Tensor:
    """Batch norm of (rows, channels), in training, where row k counts `counts[k]` times, `count` times together."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    ranks = norm.ranks if isinstance(norm, JointBatchNorm) else ALONE
    count = sum(total for (total,) in ranks.gather_numbers(count))
    if count < 2:
        return _by_running_statistics(norm, rows)
    rows = at_least_float32(rows)
    given = rows, counts.to(rows) / count, norm.weight, norm.bias, norm.eps, ranks
    normalised: Tensor
    with without_autocast(rows.device):
        normalised, mean, variance = _WeightedNorm.apply(*given)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
    return normalised


class _WeightedNorm(torch.autograd.Function):
    """Batch norm of (rows, channels), weighted by their shares of the whole; also their mean and variance."""

    @staticmethod
    def forward(  # noqa: PLR0917 (as torch calls it)
        ctx: Any, rows: Tensor, share: Tensor, weight: Tensor, bias: Tensor, eps: float, ranks: Ranks
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = ranks.sum_(share @ rows)
        normalised = rows - mean
        variance = ranks.sum_(share @ normalised.square())
        scale = (variance + eps).rsqrt()
        normalised *= scale
        ctx.save_for_backward(normalised, share, weight, scale)
        ctx.ranks = ranks
        ctx.mark_non_differentiable(mean, variance)
        return torch.addcmul(bias, normalised, weight), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None, None]:
        normalised, share, weight, scale = ctx.saved_tensors
        own = torch.stack([grad.sum(0), (grad * normalised).sum(0)])
        to_bias, to_weight = ctx.ranks.sum_(own.clone()) if ctx.ranks.count > 1 else own
        through = torch.addcmul(to_bias, normalised, to_weight).mul_(share[:, None])  # by mean and variance
        to_rows = torch.sub(grad, through, out=through).mul_(weight * scale)
        return to_rows, None, own[1], own[0], None, None


def _by_running_statistics(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    return batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
