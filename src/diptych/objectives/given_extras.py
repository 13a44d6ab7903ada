"""The extras that a caller passes to an objective: checked, converted, and missed with a clear message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from diptych.data.sampling.extras import Extras
from diptych.errors import ScoreError
from diptych.objectives.extras import NegativeScores, OfflineScores, PairRoles, WithinScores
from diptych.objectives.input_checks import check_device, check_flags, check_floats

Value = TypeVar("Value")

# The shape of every tensor of an extra. Other extras are checked by the objective that reads them.
SHAPES: dict[type, tuple[str, ...]] = {
    WithinScores: ("pairs", "pairs"),
    OfflineScores: ("pairs",),
    PairRoles: ("pairs",),
    NegativeScores: ("pairs", "negatives"),
}


class GivenExtras(Extras):
    """The extras of a call; looking up one that was not passed is a ScoreError."""

    def __init__(self, objective: str, values: Sequence[Any]) -> None:
        super().__init__(*map(_in_single_precision, values))
        self._objective = objective

    def __getitem__(self, kind: type[Value]) -> Value:
        """The value of this type, which the caller must have passed."""
        value = self.get(kind)
        if value is None:
            raise ScoreError(f"{self._objective} needs more than scores; pass extras=[{kind.__name__}(...)]")
        return value


def check_extras(extras: Sequence[Any], pairs: int, device: torch.device) -> None:
    """Raise a ScoreError unless the extras fit a batch."""
    if not isinstance(extras, Sequence):
        raise ScoreError(f"extras must be a list, such as [{type(extras).__name__}(...)]")
    for extra in extras:
        if isinstance(extra, type):
            raise ScoreError(f"extras has the class {extra.__name__}; pass an object of it, {extra.__name__}(...)")
    for name, tensor in tensors_of(extras):
        check_device(name, tensor, device)
    for extra in extras:
        for field in fields(extra) if type(extra) in SHAPES else ():
            value = getattr(extra, field.name)
            if value is not None:
                _check_tensor(f"{type(extra).__name__}.{field.name}", value, SHAPES[type(extra)], pairs)


def tensors_of(extras: Sequence[Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of extras that are dataclasses, with names such as OfflineScores.text."""
    for extra in extras:
        for field in fields(extra) if is_dataclass(extra) else ():
            value = getattr(extra, field.name)
            if isinstance(value, Tensor):
                yield f"{type(extra).__name__}.{field.name}", value


def _check_tensor(name: str, value: Any, shape: tuple[str, ...], pairs: int) -> None:
    check = check_flags if "is_" in name.rpartition(".")[2] else check_floats
    check(name, value)
    wanted = tuple(pairs if size == "pairs" else length for size, length in zip(shape, value.shape, strict=False))
    if value.dim() != len(shape) or value.shape != wanted:
        listed = str(shape).replace("'", "")
        raise ScoreError(f"{name} of shape {tuple(value.shape)} for {pairs} pairs; pass {listed}")


def _in_single_precision(extra: Any) -> Any:
    """An extra whose half precision tensors, if any, are converted."""
    halves = {
        name.rpartition(".")[2]: tensor.float()
        for name, tensor in tensors_of([extra])
        if tensor.dtype in (torch.float16, torch.bfloat16)
    }
    return replace(extra, **halves) if halves else extra
