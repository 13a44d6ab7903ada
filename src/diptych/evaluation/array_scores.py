"""The scores of a caller's own arrays, NumPy or torch, read block by block: no array is ever copied whole.

cosine = x . y / (|x| |y|)        dot = x . y        euclidean = -|x - y|
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from diptych.errors import ScoreError, did_you_mean
from diptych.evaluation.metrics.scores import Index, Score, embedding_score
from diptych.evaluation.metrics.tiles import BLOCK, BLOCK_OF_SETS

Array: TypeAlias = NDArray[Any] | Tensor

SimilarityName = Literal["cosine", "dot", "euclidean"]

# A name, or a function from a block of images and a block of texts to their (images, texts) scores.
Similarity: TypeAlias = SimilarityName | Callable[[Any, Any], Any]

SMALLEST_NORM = 1e-12  # shorter vectors count as zero, whose cosine with everything is 0

_CHECKED_AT_ONCE = 1 << 20  # numbers
_HALF = (torch.float16, torch.bfloat16)
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def read_matrix_score(matrix: Array | ArrayLike) -> Score:
    """The scores in an (images, texts) matrix; infinite scores are in order, and a NaN is an error once it is read."""
    array = _read_array("scores", matrix)
    if array.ndim != 2:
        raise ScoreError(f"scores: shape {tuple(array.shape)}; give a matrix of shape (images, texts)")
    _check_has_values("scores", array)
    images, texts = array.shape
    return Score(images, texts, lambda columns: lambda rows: _tensor(_take_columns(_take(array, rows), columns)))


def read_embeddings(images: Array | ArrayLike, texts: Array | ArrayLike, similarity: Similarity) -> tuple[Array, Array]:
    """Both arrays, not copied; raises ScoreError if their shapes or types do not fit each other or the similarity."""
    arrays = _read_array("images", images), _read_array("texts", texts)
    _check_alike(*arrays)
    if not callable(similarity):
        if similarity not in get_args(SimilarityName):
            raise ScoreError(f"no similarity {similarity!r}; {did_you_mean(similarity, get_args(SimilarityName))}")
        _check_vectors(*arrays)
    return arrays


def tile_size(images: Array, texts: Array) -> int:
    """How many scores of these embeddings to compute at once."""
    return BLOCK if images.ndim == texts.ndim == 2 else BLOCK_OF_SETS


@torch.no_grad()
def similarity_score(images: Array, texts: Array, similarity: Similarity) -> Score:
    """The scores of embeddings, which `read_embeddings` has checked.

    Raises ScoreError that names the first row with a NaN or an infinite number.
    """
    arrays = images, texts
    norms = _norms("image", images), _norms("text", texts)
    if callable(similarity):
        return embedding_score(_checked_similarity(similarity), *(_Blocks(array, _whole) for array in arrays))
    if similarity == "cosine":
        scales = [1 / each.clamp_min(SMALLEST_NORM) for each in norms]
        blocks = [_Blocks(array, _scaled(scale)) for array, scale in zip(arrays, scales, strict=True)]
    elif similarity == "dot":
        blocks = [_Blocks(array, _unchanged) for array in arrays]
    else:
        centre = _mean(images)
        blocks = [_Blocks(array, _shifted(centre)) for array in arrays]
    return embedding_score(_minus_distance if similarity == "euclidean" else _product, *blocks)


class _Blocks:
    """The rows of an array, prepared for a similarity when they are read."""

    def __init__(self, array: Array, prepare: Callable[[Array, Index], Any]) -> None:
        self._array, self._prepare = array, prepare

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Index) -> Any:
        return self._prepare(_take(self._array, index), index)


def _whole(block: Array, _index: Index) -> Array:
    return block


def _unchanged(block: Array, _index: Index) -> Tensor:
    return _tensor(block)


def _scaled(scale: Tensor) -> Callable[[Array, Index], Tensor]:
    return lambda block, index: _tensor(block) * scale[index, None]


def _shifted(centre: Tensor) -> Callable[[Array, Index], Tensor]:
    return lambda block, _index: _tensor(block) - centre


def _product(images: Tensor, texts: Tensor) -> Tensor:
    return images @ texts.T


def _minus_distance(images: Tensor, texts: Tensor) -> Tensor:
    return -torch.cdist(images, texts, compute_mode="use_mm_for_euclid_dist")


def _checked_similarity(similarity: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Tensor]:
    """A caller's own similarity, whose scores may be a tensor or an array; wrong shapes and types are errors."""

    def score(images: Array, texts: Array) -> Tensor:
        scores, shape = similarity(images, texts), (len(images), len(texts))
        scores = scores.detach() if isinstance(scores, Tensor) else np.asarray(scores)
        if tuple(scores.shape) != shape or _dtype_name(scores) not in _FLOATS:
            found = f"{_dtype_name(scores)} of shape {tuple(scores.shape)}"
            expected = f"floating point scores of shape {shape}"
            raise ScoreError(
                f"the similarity returned {found} for {shape[0]} images and {shape[1]} texts, not {expected}"
            )
        return _tensor(scores)

    return score


def _read_array(what: str, values: Array | ArrayLike) -> Array:
    """A tensor or an array as it is, anything else as an array; raises ScoreError unless it holds floats."""
    array = values.detach() if isinstance(values, Tensor) else _as_numpy(what, values)
    if not len(array.shape) or 0 in array.shape:
        raise ScoreError(f"{what}: shape {tuple(array.shape)}; there is nothing to score")
    if _dtype_name(array) not in _FLOATS:
        remedy = f"{what}.float()" if isinstance(array, Tensor) else f'{what}.astype("float32")'
        raise ScoreError(f"{what}: {_dtype_name(array)}; give floating point numbers, for example {remedy}")
    return array


def _as_numpy(what: str, values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        raise ScoreError(f"{what}: rows of different lengths or no numbers; give one array or tensor") from None


def _check_alike(images: Array, texts: Array) -> None:
    """Raise a ScoreError unless both have the same type of numbers and are on the same device."""
    for kind, first, second in (
        ("types", _dtype_name(images), _dtype_name(texts)),
        ("devices", _device(images), _device(texts)),
    ):
        if first != second:
            remedy = "convert one of them" if kind == "types" else "move one of them"
            raise ScoreError(f"images and texts have different {kind}, {first} and {second}; {remedy}")
    for what, array in (("images", images), ("texts", texts)):
        if array.ndim < 2:
            raise ScoreError(f"{what}: shape {tuple(array.shape)}; give one row per {what[:-1]}")
        _check_has_values(what, array)


def _check_has_values(what: str, array: Array) -> None:
    if _device(array) == "meta":
        raise ScoreError(f"{what}: on the device 'meta', where tensors have no values; move the model to a real one")


def _check_vectors(images: Array, texts: Array) -> None:
    """Raise a ScoreError unless both are matrices with the same number of columns."""
    for what, array in (("images", images), ("texts", texts)):
        if array.ndim != 2:
            shape = f"{what}: shape {tuple(array.shape)}"
            raise ScoreError(
                f"{shape}; give one vector per {what[:-1]}, or a function as similarity for sets of vectors"
            )
    if images.shape[1] != texts.shape[1]:
        sizes = f"images have {images.shape[1]} dimensions and texts {texts.shape[1]}"
        raise ScoreError(f"{sizes}; both must be embedded in the same space")


def _norms(side: str, array: Array) -> Tensor:
    """The length of each row; raises ScoreError at the first row that is not finite."""
    norms = []
    for start, block in _parts(array):
        norms.append(torch.linalg.vector_norm(block.flatten(1), dim=1))
        if not norms[-1].isfinite().all():
            _raise_not_finite(side, start, block.flatten(1))
    return torch.cat(norms)


def _raise_not_finite(side: str, start: int, block: Tensor) -> None:
    for problem, wrong in (("has a NaN", block.isnan()), ("is infinite", block.isinf())):
        if wrong.any():
            row = start + int(wrong.any(1).nonzero()[0])
            raise ScoreError(f"{side} {row}: its embedding {problem} (rows count from 0)")
    row = start + int(torch.linalg.vector_norm(block, dim=1).isinf().nonzero()[0])
    raise ScoreError(
        f"{side} {row}: its embedding is too long for {_dtype_name(block)} (rows count from 0); rescale it"
    )


def _mean(array: Array) -> Tensor:
    """The mean of the rows. Distances from it lose fewer digits than those of vectors far from the origin."""
    total = torch.stack([block.sum(0).cpu().double() for _, block in _parts(array)]).sum(0)
    first = _tensor(array[:1])
    return (total / len(array)).to(first.dtype).to(first.device)


def _parts(array: Array) -> Iterator[tuple[int, Tensor]]:
    """All rows, some at a time, each part with the number of its first row."""
    rows = max(1, _CHECKED_AT_ONCE * len(array) // int(np.prod(array.shape)))
    for start in range(0, len(array), rows):
        yield start, _tensor(array[start : start + rows])


def _take(array: Array, index: Index) -> Array:
    if isinstance(array, Tensor) or isinstance(index, slice):
        return array[index]
    return np.asarray(array[index.numpy()])


def _take_columns(array: Array, index: Index) -> Array:
    if isinstance(array, Tensor) or isinstance(index, slice):
        return array[:, index]
    return np.asarray(array[:, index.numpy()])


def _tensor(block: Array) -> Tensor:
    """A block as a tensor, half precision as float32; nothing is copied unless torch cannot use the memory as it is."""
    if not isinstance(block, Tensor):
        native = block.dtype.newbyteorder("=")
        usable = block.flags.writeable and block.dtype == native and all(stride >= 0 for stride in block.strides)
        block = torch.from_numpy(block if usable else np.array(block, native))
    return block.float() if block.dtype in _HALF else block


def _dtype_name(array: Array) -> str:
    return str(array.dtype).removeprefix("torch.") if isinstance(array, Tensor) else array.dtype.name


def _device(array: Array) -> str:
    return str(array.device) if isinstance(array, Tensor) else "cpu"
