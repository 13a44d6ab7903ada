"""Checks of what callers pass to objectives; what cannot be used raises a ScoreError with what to do.

Types, shapes and devices are always checked. Values (NaN, the diagonal of a mask, the range of classes) are checked on
the CPU, where that costs next to nothing. On other devices the host would have to wait for the device in every step, so
values are checked there only under `torch.autograd.set_detect_anomaly(True)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diptych.errors import ScoreError


def checks_values(device: torch.device) -> bool:
    """Whether values on a device are checked; see the module docstring."""
    return device.type == "cpu" or (device.type != "meta" and torch.is_anomaly_enabled())


def check_floats(name: str, values: object) -> None:
    """Raise a ScoreError unless the values are a tensor of floating point numbers with at least one row."""
    if not isinstance(values, Tensor):
        raise ScoreError(f"{name} must be a torch tensor, not {type(values).__name__}; use torch.as_tensor")
    if not values.is_floating_point():
        raise ScoreError(f"{name} of {values.dtype}; convert to floating point, such as {name}.float()")
    if not values.dim() or not len(values):
        raise ScoreError(f"{name} of shape {tuple(values.shape)}; pass at least one row")


def check_flags(name: str, values: object) -> None:
    """Raise a ScoreError unless the values are a boolean tensor."""
    if not isinstance(values, Tensor):
        raise ScoreError(f"{name} must be a tensor of torch.bool, not {type(values).__name__}; use torch.as_tensor")
    if values.dtype != torch.bool:
        raise ScoreError(
            f"{name} must be a tensor of torch.bool, not {values.dtype}; compare first, such as {name} > 0"
        )


def check_device(name: str, values: Tensor, device: torch.device) -> None:
    """Raise a ScoreError unless the values are on the device of the rest of the batch."""
    if values.device != device:
        raise ScoreError(f"{name} on {values.device}, the rest of the batch on {device}; move with .to('{device}')")


def refuse_where(wrong: Tensor, name: str, what: str) -> None:
    """Raise a ScoreError that names the first place where something is wrong."""
    if wrong.any():
        place = ", ".join(map(str, wrong.nonzero()[0].tolist()))
        raise ScoreError(
            f"{name}[{place}] is {what}; check what the model returns, and lower the learning rate if it diverged"
        )
