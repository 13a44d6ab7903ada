"""Embeddings: encodings as the arrays that users get from a model and pass to it, one row per image or text.

A row is a vector, (size,), or for models whose score needs several vectors a set, (places, size), padded with zeros.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from typing_extensions import TypeIs

from diptych.data.corpus import Floats
from diptych.errors import DiptychError, ScoreError
from diptych.models.engines.engine import Encodings, Engine
from diptych.optional import TRAIN

if TYPE_CHECKING:
    import torch

Embeddings: TypeAlias = "Floats | torch.Tensor"
Side: TypeAlias = Literal["images", "texts"]


def to_array(encodings: Encodings) -> Floats:
    """The embeddings of an engine's encodings: (items, size), or (items, places, size) if they are sets."""
    if encodings.sets is None:
        return encodings.vectors
    places = max((len(members) for members in encodings.sets), default=0)
    array = np.zeros((len(encodings), places, encodings.vectors.shape[1]), np.float32)
    for row, members in zip(array, encodings.sets, strict=True):
        row[: len(members)] = members
    return array


def from_array(array: Floats) -> Encodings:
    """The encodings that `to_array` made an array of."""
    if array.ndim == 2:
        return Encodings(array)
    return Encodings(normalized(array.sum(1)), tuple(row[row.any(1)] for row in array))


def normalized(array: Floats) -> Floats:
    """All vectors scaled to length one; zeros stay zeros."""
    lengths = np.linalg.norm(array, axis=-1, keepdims=True)
    return (array / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)


def to_tensor(array: Floats, engine: Engine) -> torch.Tensor:
    """An array as a tensor on the device of an engine."""
    try:
        import torch
    except ModuleNotFoundError:
        raise DiptychError(
            f"as_tensor=True needs torch, which is not installed; leave it out for arrays, or run: {TRAIN}"
        ) from None
    return torch.from_numpy(array).to(getattr(engine, "device", "cpu"))


def are_embeddings(values: object) -> TypeIs[Embeddings]:
    """Whether a user passed embeddings, rather than images or texts: a tensor, or an array of numbers but bytes."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "fiubc" and values.dtype != np.uint8
    return _is_tensor(values)


def check_devices(images: object, texts: object) -> None:
    """Refuse two tensors on different devices."""
    devices = [str(getattr(values, "device", "")) for values in (images, texts) if _is_tensor(values)]
    if len(set(devices)) > 1:
        raise ScoreError(f"images are on {devices[0]} and texts on {devices[1]}; move them to one device")


def check_embeddings(values: Any, side: Side, engine: Engine) -> Floats:
    """Embeddings that a user passed, as float32; raises ScoreError if the engine cannot have made them."""
    if _is_tensor(values):
        if not values.is_floating_point():
            raise ScoreError(f"{side}: a tensor of {values.dtype}; embeddings are floating-point")
        if values.is_meta:
            raise ScoreError(f"{side}: on the device 'meta', where tensors have no values; encode on a real one")
        values = values.detach().float().cpu().numpy()
    if values.dtype.kind != "f":
        raise ScoreError(f"{side}: an array of {values.dtype}; embeddings are floating-point")
    size, dimensions = engine.embedding_dim, _dimensions(engine, side)
    if values.ndim not in dimensions or values.shape[-1] != size:
        wanted = " or ".join(f"({side}, {'places, ' if number == 3 else ''}{size})" for number in dimensions)
        raise ScoreError(f"{side}: an array of shape {values.shape}; the embeddings of this model are {wanted}")
    finite = np.isfinite(values).all(tuple(range(1, values.ndim)))
    if not finite.all():
        raise ScoreError(f"{side}: row {int(np.argmin(finite))} is not finite; encode it again, or leave it out")
    array: Floats = np.ascontiguousarray(values, np.float32)
    return array


def check_one_image(values: Any, engine: Engine) -> Floats:
    """The embedding of one image that a user passed, with or without a leading axis of one, as (1, ...)."""
    is_row = values.ndim == (1 if engine.encodes_vectors else 2)
    array = check_embeddings(values[None] if is_row else values, "images", engine)
    if len(array) != 1:
        raise ScoreError(f"images: {len(array)} rows; pass the embedding of one image, such as embeddings[0]")
    return array


def _dimensions(engine: Engine, side: Side) -> tuple[int, ...]:
    """The possible numbers of axes of one side's embeddings."""
    if engine.encodes_vectors:
        return (2,)
    if engine.encode_texts(["a"]).sets is not None:
        return (3,)
    return (2,) if side == "texts" else (2, 3)  # a photo is scored by its best region, or is one vector itself


def _is_tensor(values: object) -> bool:
    torch = sys.modules.get("torch")  # without it nobody can have made a tensor
    return torch is not None and isinstance(values, torch.Tensor)
