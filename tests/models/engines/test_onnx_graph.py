import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from diptych.errors import DiptychError, RunError
from diptych.models.engines import onnx_graph
from diptych.models.engines.onnx_graph import Graph

# Variables that turn the telemetry of onnxruntime off.
_SILENCING = ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "TF_BUILD", "GITHUB_ACTIONS")


@pytest.fixture
def doubling(tmp_path):
    """A graph that doubles the bytes of images."""
    nodes = [
        helper.make_node("Cast", ["images"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["numbers", "numbers"], ["vectors"]),
    ]
    read = helper.make_tensor_value_info("images", TensorProto.UINT8, [None, 2])
    made = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph(nodes, "doubling", [read], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "image.onnx")
    return tmp_path / "image.onnx"


def test_a_graph_is_opened_once_when_it_is_first_run(doubling, monkeypatch):
    opened, session = [], onnx_graph._session
    monkeypatch.setattr(onnx_graph, "_session", lambda path: opened.append(path) or session(path))
    graph = Graph(doubling)
    assert not opened
    images = np.array([[1, 2], [3, 255]], np.uint8)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: graph.encode_images(images), range(4)):
            np.testing.assert_array_equal(vectors, images.astype(np.float32) * 2)
    assert opened == [doubling]


def test_input_that_the_graph_does_not_fit_is_one_line(doubling):
    with pytest.raises(RunError, match=r"image\.onnx: onnxruntime cannot run it .*; export the run again") as refused:
        Graph(doubling).encode_images(np.zeros((1, 3), np.uint8))
    assert "\n" not in str(refused.value)


def test_nothing_is_reported_or_noted_about_the_machine(doubling, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    program = f"""if True:
        from pathlib import Path
        import numpy as np
        from diptych.models.engines.onnx_graph import Graph
        print(Graph(Path({str(doubling)!r})).encode_images(np.ones((1, 2), np.uint8)))
    """
    variables = {name: value for name, value in os.environ.items() if name not in _SILENCING}
    variables |= dict.fromkeys(("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), str(home))
    ran = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert ran.stdout == "[[2. 2.]]\n"
    assert list(home.rglob("*")) == []


def test_a_missing_runtime_is_noticed_on_use(doubling, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    graph = Graph(doubling)
    with pytest.raises(DiptychError, match="onnxruntime is not installed; run: pip install onnxruntime"):
        graph.encode_images(np.zeros((1, 2), np.uint8))
