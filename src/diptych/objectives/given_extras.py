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
from diptych.objectives.input_checks import check_device, check_floats

Value = TypeVar("Value")

# The shape of each tensor of an extra; None is any number. Other extras are checked by the objective that reads them.
PAIRS = "pairs"
SHAPES: dict[type, tuple[str | None, ...]] = {
    WithinScores: (PAIRS, PAIRS),
    OfflineScores: (PAIRS,),
    PairRoles: (PAIRS,),
    NegativeScores: (PAIRS, None),
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


def _check_tensor(name: str, value: Any, shape: tuple[str | None, ...], pairs: int) -> None:
    is_flag = "is_" in name.rpartition(".")[2]
    if is_flag and not (isinstance(value, Tensor) and value.dtype == torch.bool):
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ScoreError(f"{name} must be a tensor of torch.bool, not {kind}")
    if not is_flag:
        check_floats(name, value)
    if value.dim() != len(shape) or any(
        size and length != pairs for size, length in zip(shape, value.shape, strict=True)
    ):
        listed = {(PAIRS,): "(pairs,)", (PAIRS, PAIRS): "(pairs, pairs)", (PAIRS, None): "(pairs, negatives)"}[shape]
        raise ScoreError(f"{name} of shape {tuple(value.shape)} for {pairs} pairs; pass {listed}")


def _in_single_precision(extra: Any) -> Any:
    """An extra whose half precision tensors, if any, are converted."""
    halves = {
        name.rpartition(".")[2]: tensor.float()
        for name, tensor in tensors_of([extra])
        if tensor.dtype in (torch.float16, torch.bfloat16)
    }
    return replace(extra, **halves) if halves else extra
