"""At least single precision, also within `torch.autocast`, for what half precision would spoil."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

_AS_IT_IS = nullcontext()


def at_least_float32(values: Tensor) -> Tensor:
    """Values in at least single precision."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which `torch.autocast` does not reduce the precision on a device."""
    kind = device.type
    is_possible = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if is_possible and torch.is_autocast_enabled(kind) else _AS_IT_IS


def normalize(vectors: Tensor, dim: int) -> Tensor:
    """Vectors of length one along a dimension; in float16, a vector of zeros would become NaN."""
    return nn.functional.normalize(at_least_float32(vectors), dim=dim)
