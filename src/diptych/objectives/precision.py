"""The precision of losses: at least single precision, also within `torch.autocast`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_AS_IT_IS = nullcontext()


def at_least_float32(values: Tensor) -> Tensor:
    """Values in at least single precision."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which `torch.autocast` does not reduce the precision on a device."""
    kind = device.type
    is_possible = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if is_possible and torch.is_autocast_enabled(kind) else _AS_IT_IS
