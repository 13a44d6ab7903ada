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

HALF = (torch.float16, torch.bfloat16)

# The shape of every tensor of an extra. Other extras are checked by the objective that reads them.
SHAPES: dict[type, tuple[str, ...]] = {
    WithinScores: ("pairs", "pairs"),
    OfflineScores: ("pairs",),
    PairRoles: ("pairs",),
    NegativeScores: ("pairs", "negatives"),
}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in SHAPES}


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
    if not all(fits(extra, pairs, device) for extra in extras):
        _explain_misfit(extras, pairs, device)


def fits(extra: Any, pairs: int, device: torch.device) -> bool:
    """Whether an extra of a known kind fits a batch: a quick test of what is nearly always right.

    Other kinds have to be looked at more closely.
    """
    shape = SHAPES.get(type(extra))
    if shape is None:
        return False
    for name in _field_names(type(extra)):
        value = getattr(extra, name)
        if value is not None and not (
            isinstance(value, Tensor)
            and value.device == device
            and (value.dtype == torch.bool if _is_flag(name) else value.is_floating_point())
            and value.dim() == len(shape)
            and value.shape[0] == pairs
            and (shape[-1] != "pairs" or value.shape[-1] == pairs)
        ):
            return False
    return True


def _explain_misfit(extras: Sequence[Any], pairs: int, device: torch.device) -> None:
    """Raise a ScoreError that says what does not fit, if anything."""
    for extra in extras:
        if isinstance(extra, type):
            raise ScoreError(f"extras has the class {extra.__name__}; pass an object of it, {extra.__name__}(...)")
    for name, tensor in tensors_of(extras):
        check_device(name, tensor, device)
    for extra in extras:
        for field in _field_names(type(extra)) if type(extra) in SHAPES else ():
            value = getattr(extra, field)
            if value is not None:
                _check_tensor(f"{type(extra).__name__}.{field}", value, SHAPES[type(extra)], pairs)


def tensors_of(extras: Sequence[Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of extras that are dataclasses, with names such as OfflineScores.text."""
    for extra in extras:
        for field in _field_names(type(extra)):
            value = getattr(extra, field)
            if isinstance(value, Tensor):
                yield f"{type(extra).__name__}.{field}", value


def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass; other kinds have none."""
    known = _FIELDS.get(kind)
    if known is not None:
        return known
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _is_flag(field: str) -> bool:
    return "is_" in field


def _check_tensor(name: str, value: Any, shape: tuple[str, ...], pairs: int) -> None:
    check = check_flags if _is_flag(name.rpartition(".")[2]) else check_floats
    check(name, value)
    wanted = tuple(pairs if size == "pairs" else length for size, length in zip(shape, value.shape, strict=False))
    if value.dim() != len(shape) or value.shape != wanted:
        listed = str(shape).replace("'", "")
        raise ScoreError(f"{name} of shape {tuple(value.shape)} for {pairs} pairs; pass {listed}")


def _in_single_precision(extra: Any) -> Any:
    """An extra whose half precision tensors, if any, are converted."""
    values = {name: getattr(extra, name) for name in _field_names(type(extra))}
    halves = {name: value.float() for name, value in values.items() if getattr(value, "dtype", None) in HALF}
    return replace(extra, **halves) if halves else extra
