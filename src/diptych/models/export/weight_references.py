"""Graphs that read their weights from the safetensors file of a run, which is beside them.

The tensors of a safetensors file are raw, little-endian numbers at known places, which is what ONNX calls external
data. An initialiser of a graph that equals a tensor of the file becomes a reference to its bytes, followed by a cast if
they are float16. So the weights are stored once, and graphs and torch cannot differ.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
_SMALLEST = 64  # numbers; fewer are not worth a reference


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: where its bytes are, and what they are."""

    offset: int
    length: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self, path: Path) -> NDArray[np.float32]:
        """The tensor as float32."""
        values = np.fromfile(path, self.dtype, math.prod(self.shape), offset=self.offset)
        return values.reshape(self.shape).astype(np.float32)


def stored_tensors(path: Path) -> list[StoredTensor]:
    """The float tensors in a safetensors file that are worth a reference."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    found = []
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in _TYPES and math.prod(entry["shape"]) >= _SMALLEST:
            begin, end = entry["data_offsets"]
            found.append(StoredTensor(8 + size + begin, end - begin, _TYPES[entry["dtype"]], tuple(entry["shape"])))
    return found


def refer_to_weights(model: Any, weights: Path) -> None:
    """Replace the initialisers of an ONNX model that a file of weights has by references to that file."""
    from onnx import TensorProto, helper, numpy_helper

    known = {_key(values): tensor for tensor in stored_tensors(weights) for values in [tensor.read(weights)]}
    graph, casts = model.graph, []
    for initialiser in graph.initializer:
        if initialiser.data_type != TensorProto.FLOAT or math.prod(initialiser.dims) < _SMALLEST:
            continue
        tensor = known.get(_key(numpy_helper.to_array(initialiser)))
        if tensor is None:
            continue
        if tensor.dtype == _TYPES["F16"]:
            half = f"{initialiser.name}_float16"
            casts.append(helper.make_node("Cast", [half], [initialiser.name], to=TensorProto.FLOAT))
            initialiser.name, initialiser.data_type = half, TensorProto.FLOAT16
        initialiser.ClearField("raw_data")
        initialiser.ClearField("float_data")
        initialiser.data_location = TensorProto.EXTERNAL
        for key, value in (("location", weights.name), ("offset", tensor.offset), ("length", tensor.length)):
            initialiser.external_data.add(key=key, value=str(value))
    nodes = [*casts, *graph.node]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)


def _key(values: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    return values.shape, np.ascontiguousarray(values, np.float32).tobytes()
