"""Which models are exported, and the check against torch before anything is written."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from diptych.errors import RunError
from diptych.models.export import onnx as onnx_export
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

WORDS = 12
PIXELS = CNNSettings(pixels=16, width=1)
GRU = GRUSettings(word=3, hidden=4)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (OrderSettings(joint=4, image=PIXELS, text=GRU), "the score of 'order' is not an inner product"),
        (SCANSettings(), "the score of 'scan' is not an inner product"),
        (VSESettings(joint=4, image=FeatureSettings(shape=(5,)), text=GRU), "cannot see photos"),
        (VSRNSettings(joint=4, image=RegionBackboneSettings(), text=GRU), "reads regions"),
    ],
    ids=["order", "scan", "features", "regions"],
)
def test_what_has_no_graph_is_refused(made, why):
    with torch.device("meta"):
        shape = (3, 4) if made.name == "scan" else None
        matcher = made.for_data(WORDS, shape or getattr(made.image, "shape", None)).build()
    with pytest.raises(RunError, match=f"runs/own: has no ONNX form: .*{why}.*; use the run itself"):
        onnx_export.check_exportable(matcher, "runs/own")


def zeros(**inputs):
    """A graph that makes zeros of everything, as many rows of 4 as there are inputs."""
    first = next(iter(inputs))
    nodes = [
        helper.make_node("Shape", [first], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "size"], ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["vectors"]),
    ]
    read = [helper.make_tensor_value_info(name, kind, [None] * axes) for name, (kind, axes) in inputs.items()]
    made = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [None, 4])]
    graph = helper.make_graph(nodes, "zeros", read, made, [numpy_helper.from_array(np.array([4]), "size")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    vocabulary = Vocabulary.from_texts(["a red circle"], 1)
    matcher = VSESettings(joint=4, image=PIXELS, text=GRU, words=len(vocabulary)).build()
    save_matcher(tmp_path / "run/best/weights.safetensors", matcher, vocabulary, {})
    vocabulary.save(tmp_path / "run")
    monkeypatch.setattr(onnx_export, "image_graph", lambda _: zeros(images=(TensorProto.UINT8, 4)))
    monkeypatch.setattr(
        onnx_export, "text_graph", lambda _: zeros(ids=(TensorProto.INT64, 2), lengths=(TensorProto.INT64, 1))
    )
    with pytest.raises(RunError, match=r"run: has no ONNX form: it differs from torch by [1-9].*; use the run itself"):
        onnx_export.export_onnx(tmp_path / "run", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
