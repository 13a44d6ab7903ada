"""Embeddings: arrays for users, encodings for the engines, and one sentence for arrays that cannot be scored."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.errors import DiptychError, ScoreError
from diptych.models.embeddings import (
    are_embeddings,
    check_devices,
    check_embeddings,
    check_one_image,
    from_array,
    normalized,
    to_array,
    to_tensor,
)
from diptych.models.engines.engine import Encodings

RANDOM = np.random.default_rng(0)
SETS = tuple(RANDOM.normal(size=(length, 4)).astype(np.float32) for length in (2, 0, 3))


def engine(kind="vectors"):
    """An engine of four dimensions: `vectors` on both sides, `sets` on both, or `regions` with texts as vectors."""
    sets = SETS if kind == "sets" else None
    return SimpleNamespace(
        encodes_vectors=kind == "vectors",
        embedding_dim=4,
        encode_texts=lambda texts: Encodings(np.zeros((len(texts), 4), np.float32), sets and sets[: len(texts)]),
    )


def test_sets_are_padded_with_zeros_and_back():
    array = to_array(Encodings(np.zeros((3, 4), np.float32), SETS))
    assert (array.shape, array.dtype) == ((3, 3, 4), np.float32)
    np.testing.assert_array_equal(array[0, :2], SETS[0])
    assert not array[0, 2].any()
    assert not array[1].any()
    back = from_array(array)
    for members, wanted in zip(back.sets, SETS, strict=True):
        np.testing.assert_array_equal(members, wanted)
    mean = SETS[2].sum(0)
    np.testing.assert_allclose(back.vectors[2], mean / np.linalg.norm(mean), rtol=1e-6)
    assert to_array(Encodings(np.zeros((0, 4), np.float32), ())).shape == (0, 0, 4)


def test_vectors_are_the_array_itself():
    vectors = RANDOM.normal(size=(3, 4)).astype(np.float32)
    assert to_array(Encodings(vectors)) is vectors
    assert from_array(vectors).vectors is vectors
    assert from_array(vectors).sets is None


def test_every_vector_is_scaled_to_length_one_and_zeros_stay():
    array = to_array(Encodings(np.zeros((3, 4), np.float32), SETS))
    scaled = normalized(array)
    assert scaled.dtype == np.float32
    lengths = np.linalg.norm(scaled, axis=2)
    np.testing.assert_allclose(lengths, [[1, 1, 0], [0, 0, 0], [1, 1, 1]], atol=1e-6)


def test_tensors_are_on_the_device_of_the_engine(monkeypatch):
    array = np.ones((2, 4), np.float32)
    assert to_tensor(array, engine()).device == torch.device("cpu")
    assert to_tensor(array, SimpleNamespace(device=torch.device("meta"))).device == torch.device("meta")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DiptychError, match="as_tensor=True needs torch, which is not installed"):
        to_tensor(array, engine())


def test_what_counts_as_embeddings():
    for dtype in (np.float32, np.float64, np.float16, np.int64, np.complex64, bool):
        assert are_embeddings(np.zeros((2, 4), dtype))
    assert are_embeddings(torch.zeros(2, 4, dtype=torch.uint8))
    for other in (np.zeros((2, 4, 4, 3), np.uint8), np.array(["a.jpg"]), [np.zeros(4)], "a", None):
        assert not are_embeddings(other)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_any_floating_point_numbers_become_float32(dtype):
    values = RANDOM.normal(size=(3, 4)).astype(dtype)
    array = check_embeddings(values, "texts", engine())
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, values.astype(np.float32))
    tensor = torch.from_numpy(values).requires_grad_()
    np.testing.assert_array_equal(check_embeddings(tensor, "texts", engine()), array)
    assert check_embeddings(torch.zeros(3, 4, dtype=torch.bfloat16), "texts", engine()).dtype == np.float32


def refused(values, side="images", kind="vectors"):
    with pytest.raises(ScoreError) as error:
        check_embeddings(values, side, engine(kind))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_shapes_that_the_model_does_not_make_are_refused():
    for shape in ((4,), (3, 5), (3, 2, 4), ()):
        wanted = f"images: an array of shape {shape}; the embeddings of this model are (images, 4)"
        assert refused(np.zeros(shape, np.float32)) == wanted
    assert refused(np.zeros((3, 4)), "texts", "sets").endswith("are (texts, places, 4)")
    assert refused(np.zeros((3, 2, 4)), "texts", "regions").endswith("are (texts, 4)")
    assert refused(np.zeros((3, 5)), "images", "regions").endswith("are (images, 4) or (images, places, 4)")
    for shape in ((3, 4), (3, 2, 4)):
        assert check_embeddings(np.zeros(shape), "images", engine("regions")).shape == shape
    assert check_embeddings(np.zeros((0, 4)), "images", engine()).shape == (0, 4)


def test_numbers_that_cannot_be_scored_are_refused():
    for wrong in (np.nan, np.inf, -np.inf):
        values = np.zeros((3, 4))
        values[2, 1] = wrong
        assert refused(values, "texts") == "texts: row 2 is not finite; encode it again, or leave it out"
    sets = np.zeros((3, 2, 4))
    sets[1, 1, 0] = np.nan
    assert "row 1 is not finite" in refused(sets, kind="sets")
    assert refused(np.zeros((3, 4), np.int64)) == "images: an array of int64; embeddings are floating-point"
    assert refused(torch.zeros(3, 4, dtype=torch.int32)) == (
        "images: a tensor of torch.int32; embeddings are floating-point"
    )


def test_tensors_on_two_devices_are_refused():
    here, there = torch.zeros(2, 4), torch.zeros(2, 4, device="meta")
    with pytest.raises(ScoreError, match="images are on cpu and texts on meta; move them to one device"):
        check_devices(here, there)
    for fine in ((here, here), (here, np.zeros(3)), (["a.jpg"], there), (np.zeros(3), ["a"])):
        check_devices(*fine)


@pytest.mark.parametrize(("kind", "row"), [("vectors", (4,)), ("sets", (2, 4)), ("regions", (2, 4))])
def test_one_image_may_have_a_leading_axis(kind, row):
    values = RANDOM.normal(size=row).astype(np.float32)
    for given in (values, values[None], torch.from_numpy(values)):
        np.testing.assert_array_equal(check_one_image(given, engine(kind)), values[None])
    with pytest.raises(ScoreError, match=r"images: 2 rows; pass the embedding of one image, such as embeddings\[0\]"):
        check_one_image(np.stack([values, values]), engine(kind))
