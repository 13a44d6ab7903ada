"""Graphs that read the weights of a run, instead of having them twice."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, external_data_helper

from diptych.models.export.onnx_graphs import image_graph, write_graph
from diptych.models.export.weight_references import refer_to_weights, stored_tensors
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_tensors
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings


@pytest.fixture(scope="module")
def matcher():
    torch.manual_seed(0)
    text = GRUSettings(word=3, hidden=9)
    matcher = VSESettings(joint=9, image=CNNSettings(pixels=16, width=4), text=text, words=7).build().eval()
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.copy_(parameter.half().float())
    return matcher


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_weights_are_read_from_the_file_of_the_run(matcher, tmp_path, dtype):
    file = tmp_path / "weights.safetensors"
    tensors = {name: tensor.to(dtype) if tensor.dim() > 1 else tensor for name, tensor in matcher.state_dict().items()}
    save_tensors(file, tensors, {})
    graph = image_graph(matcher, keeps_weights=True)
    refer_to_weights(graph, file)
    large = [part for part in graph.graph.initializer if np.prod(part.dims) >= 64]
    assert large
    assert all(external_data_helper.uses_external_data(part) for part in large)
    wanted = TensorProto.FLOAT16 if dtype == torch.float16 else TensorProto.FLOAT
    assert {part.data_type for part in large if len(part.dims) > 1} == {wanted}
    write_graph(graph, tmp_path / "image.onnx")
    images = torch.randint(256, (3, 3, 16, 16), dtype=torch.uint8)
    session = onnxruntime.InferenceSession(tmp_path / "image.onnx", providers=["CPUExecutionProvider"])
    with torch.inference_mode():
        expected = matcher.encode_images(images).numpy()
    np.testing.assert_allclose(session.run(None, {"images": images.numpy()})[0], expected, atol=1e-5)


def test_what_the_file_does_not_have_stays_in_the_graph(matcher, tmp_path):
    file = tmp_path / "weights.safetensors"
    save_tensors(file, {name: tensor + 1 for name, tensor in matcher.state_dict().items()}, {})
    graph = image_graph(matcher, keeps_weights=True)
    before = graph.SerializeToString()
    refer_to_weights(graph, file)
    assert not any(external_data_helper.uses_external_data(part) for part in graph.graph.initializer)
    assert len(graph.SerializeToString()) <= len(before)


def test_stored_tensors_are_those_that_were_saved(tmp_path):
    tensors = {
        "half": torch.randn(9, 11).half(),
        "whole": torch.randn(70),
        "few": torch.randn(3),
        "ids": torch.arange(99),
    }
    save_tensors(tmp_path / "own.safetensors", tensors, {"note": "any"})
    found = {
        tensor.shape: tensor.read(tmp_path / "own.safetensors")
        for tensor in stored_tensors(tmp_path / "own.safetensors")
    }
    assert set(found) == {(9, 11), (70,)}
    np.testing.assert_array_equal(found[9, 11], tensors["half"].float().numpy())
    np.testing.assert_array_equal(found[70,], tensors["whole"].numpy())
