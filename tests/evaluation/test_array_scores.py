from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch

from diptych.errors import ScoreError
from diptych.evaluation import array_scores
from diptych.evaluation.array_scores import read_embeddings, read_matrix_score, similarity_score, tile_size
from diptych.evaluation.metrics.tiles import BLOCK, BLOCK_OF_SETS

RANDOM = np.random.default_rng(0)
IMAGES, TEXTS = RANDOM.normal(size=(20, 6)), RANDOM.normal(size=(30, 6))


def scores_of(images, texts, similarity, rows=slice(0, 20), columns=slice(0, 30)):
    score = similarity_score(*read_embeddings(images, texts, similarity), similarity)
    assert (score.images, score.texts) == (len(images), len(texts))
    return score.against(columns)(rows)


def expected(similarity):
    if similarity == "cosine":
        lengths = np.linalg.norm(IMAGES, axis=1)[:, None] * np.linalg.norm(TEXTS, axis=1)
        return IMAGES @ TEXTS.T / lengths
    if similarity == "dot":
        return IMAGES @ TEXTS.T
    return -np.linalg.norm(IMAGES[:, None] - TEXTS, axis=2)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_similarities_are_those_of_their_equations(similarity, kind, as_tensor):
    pair = IMAGES.astype(kind), TEXTS.astype(kind)
    found = scores_of(*(map(torch.from_numpy, pair) if as_tensor else pair), similarity)
    assert found.dtype == (torch.float64 if kind == np.float64 else torch.float32)
    tolerance = {np.float16: 2e-2, np.float32: 1e-5, np.float64: 1e-7}[kind]
    np.testing.assert_allclose(found, expected(similarity), atol=tolerance)


def test_bfloat16_is_scored_in_float32():
    pair = torch.from_numpy(IMAGES).bfloat16(), torch.from_numpy(TEXTS).bfloat16()
    found = scores_of(*pair, "dot")
    assert torch.equal(found, pair[0].float() @ pair[1].float().T)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_rows_can_be_given_by_their_numbers(similarity):
    rows, columns = torch.tensor([3, 1, 3, 19]), torch.tensor([29, 0])
    for pair in ((IMAGES, TEXTS), (torch.from_numpy(IMAGES), torch.from_numpy(TEXTS))):
        found = scores_of(*pair, similarity, rows, columns)
        np.testing.assert_allclose(found, expected(similarity)[[3, 1, 3, 19]][:, [29, 0]], atol=1e-7)


def test_the_cosine_with_zero_is_zero():
    assert scores_of(np.zeros((20, 6)), TEXTS, "cosine").abs().max() == 0


def test_distances_far_from_the_origin_keep_their_digits():
    far = [(array + 1000).astype(np.float32) for array in (IMAGES, TEXTS)]
    exact = -np.linalg.norm(far[0][:, None].astype(np.float64) - far[1], axis=2)
    np.testing.assert_allclose(scores_of(*far, "euclidean"), exact, atol=1e-4)


def test_a_function_gets_blocks_of_what_was_given():
    kinds: set[type] = set()  # sets of vectors: the best of each image's three
    sets = RANDOM.normal(size=(20, 3, 6))
    wanted = np.einsum("ird,td->itr", sets, TEXTS).max(-1)
    np.testing.assert_allclose(scores_of(sets, TEXTS, nearest_numpy(kinds)), wanted)
    tensors = torch.from_numpy(sets), torch.from_numpy(TEXTS)
    np.testing.assert_allclose(scores_of(*tensors, nearest_torch(kinds)), wanted)
    assert kinds == {np.ndarray, torch.Tensor}
    assert tile_size(*tensors) == BLOCK_OF_SETS < BLOCK == tile_size(IMAGES, TEXTS)


def nearest_numpy(kinds):
    return lambda images, texts: kinds.add(type(images)) or np.einsum("ird,td->itr", images, texts).max(-1)


def nearest_torch(kinds):
    return lambda images, texts: kinds.add(type(images)) or torch.einsum("ird,td->itr", images, texts).amax(-1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_memory_mapped_files_of_any_layout_are_read_only_in_blocks(tmp_path, monkeypatch, order, byte_order):
    monkeypatch.setattr(array_scores, "_CHECKED_AT_ONCE", 24)
    taken = []
    tensor = array_scores._tensor
    monkeypatch.setattr(array_scores, "_tensor", lambda block: taken.append(len(block)) or tensor(block))
    mapped = []
    for name, array in (("images", IMAGES), ("texts", TEXTS)):
        np.save(tmp_path / f"{name}.npy", np.asarray(array, f"{byte_order}f8", order=order))
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays that cannot be written to
        found = scores_of(*mapped, "cosine", slice(0, 9), slice(5, 15))
    np.testing.assert_allclose(found, expected("cosine")[:9, 5:15], atol=1e-7)
    assert max(taken) == 10


def test_a_tensor_that_is_trained_is_read_without_its_gradients():
    found = scores_of(torch.from_numpy(IMAGES).requires_grad_(), torch.from_numpy(TEXTS), "cosine")
    assert not found.requires_grad


def test_arrays_in_reverse_and_lists_are_read():
    np.testing.assert_allclose(scores_of(IMAGES[::-1], TEXTS.tolist(), "dot"), IMAGES[::-1] @ TEXTS.T)


@pytest.mark.parametrize("rows", [slice(2, 9), torch.tensor([4, 2])])
@pytest.mark.parametrize("columns", [slice(0, 3), torch.tensor([7, 0, 7])])
def test_a_matrix_is_read_in_tiles(rows, columns):
    matrix = IMAGES @ TEXTS.T
    wanted = torch.from_numpy(matrix)[rows][:, columns]
    matrix.flags.writeable = False
    assert torch.equal(read_matrix_score(matrix).against(columns)(rows), wanted)
    assert torch.equal(read_matrix_score(wanted.new_tensor(matrix)).against(columns)(rows), wanted)


def with_value(value, row):
    array = IMAGES.astype(np.float32)
    array[row, 2] = value
    return array


SQUARE = IMAGES.astype(np.float32)


@pytest.mark.parametrize(
    ("images", "texts", "similarity", "message"),
    [
        (SQUARE[0], SQUARE, "dot", "images: shape (6,); give one row per image"),
        (SQUARE, np.float32(1), "dot", "texts: shape (); there is nothing to score"),
        (SQUARE[:0], SQUARE, "dot", "images: shape (0, 6); there is nothing to score"),
        (SQUARE, SQUARE[:, :0], "dot", "texts: shape (20, 0); there is nothing to score"),
        (
            *(SQUARE, SQUARE[:, :4], "cosine"),
            "images have 6 dimensions and texts 4; both must be embedded in the same space",
        ),
        (
            *(SQUARE, SQUARE[:, None], "cosine"),
            "texts: shape (20, 1, 6); give one vector per text, or a function as similarity for sets of vectors",
        ),
        (
            *(SQUARE.astype(int), SQUARE, "dot"),
            'images: int64; give floating point numbers, for example images.astype("float32")',
        ),
        (
            *(SQUARE, torch.ones(20, 6, dtype=torch.bool), "dot"),
            "texts: bool; give floating point numbers, for example texts.float()",
        ),
        (
            *(SQUARE, [[1.0], [2.0, 3.0]], "dot"),
            "texts: rows of different lengths or no numbers; give one array or tensor",
        ),
        (
            *(SQUARE, torch.ones(20, 6).double(), "dot"),
            "images and texts have different types, float32 and float64; convert one of them",
        ),
        (
            *(SQUARE, torch.ones(20, 6, device="meta"), "dot"),
            "images and texts have different devices, cpu and meta; move one of them",
        ),
        (
            *(torch.ones(20, 6, device="meta"), torch.ones(20, 6, device="meta"), "dot"),
            "images: on the device 'meta', where tensors have no values; move the model to a real one",
        ),
        (SQUARE, SQUARE, "cosin", "no similarity 'cosin'; did you mean 'cosine'?"),
        (with_value(np.nan, 13), SQUARE, "cosine", "image 13: its embedding has a NaN (rows count from 0)"),
        (SQUARE, with_value(-np.inf, 17), "dot", "text 17: its embedding is infinite (rows count from 0)"),
        (SQUARE, with_value(np.nan, 17), max, "text 17: its embedding has a NaN (rows count from 0)"),
        (
            *(with_value(3e38, 5), SQUARE, "cosine"),
            "image 5: its embedding is too long for float32 (rows count from 0); rescale it",
        ),
        (
            *(SQUARE, SQUARE, lambda images, texts: images[:, 0]),
            "the similarity returned float32 of shape (20,) for 20 images and 20 texts, not floating point scores of "
            "shape (20, 20)",
        ),
        (
            *(SQUARE, SQUARE, lambda images, texts: torch.ones(len(images), len(texts)).int()),
            "the similarity returned int32 of shape (20, 20) for 20 images and 20 texts, not floating point scores of "
            "shape (20, 20)",
        ),
    ],
)
def test_embeddings_that_cannot_be_used_are_errors(monkeypatch, images, texts, similarity, message):
    monkeypatch.setattr(array_scores, "_CHECKED_AT_ONCE", 24)
    with pytest.raises(ScoreError, match=f"^{re.escape(message)}$"):
        scores_of(images, texts, similarity, slice(0, 20), slice(0, 20))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(3, dtype=np.int32), 'scores: int32; give floating point numbers, for example scores.astype("float32")'),
        (torch.eye(3).long(), "scores: int64; give floating point numbers, for example scores.float()"),
        (np.ones(3), "scores: shape (3,); give a matrix of shape (images, texts)"),
        (np.ones((0, 3)), "scores: shape (0, 3); there is nothing to score"),
    ],
)
def test_matrices_that_cannot_be_used_are_errors(matrix, message):
    with pytest.raises(ScoreError, match=f"^{re.escape(message)}$"):
        read_matrix_score(matrix)
