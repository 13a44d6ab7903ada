from functools import cache

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from diptych.errors import RunError
from diptych.models.export import onnx as onnx_export
from diptych.models.export.onnx_graphs import image_graph, image_shape, text_graph
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.storage import save_matcher
from diptych.models.tower import FittedTextTower, TextTower, Tokens
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings
from diptych.models.towers.text.cnn import TextCNN, TextCNNSettings
from diptych.models.towers.text.fisher import FisherSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.mean import MeanSettings
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.text.vocabulary import Vocabulary, pad_ids

WORDS = 12
PIXELS = CNNSettings(pixels=16, width=1)
GRU = GRUSettings(word=3, hidden=4)
TOWERS = {
    "cnn": TextCNNSettings(word=3, length=8),
    "strided": TextCNNSettings(word=8, length=9),
    "max": TextCNNSettings(word=8, length=9, pool="max", alignment="left"),
    "mean": MeanSettings(word=5),
    "tfidf": TfidfSettings(),
    "fisher": FisherSettings(word=5, centres=2, size=6),
    "whole fisher": FisherSettings(word=5, centres=2, mixture="gmm"),
}

texts = st.lists(st.lists(st.integers(3, WORDS - 1), max_size=14), min_size=1, max_size=9)


def tokens(rows):
    ids, lengths = pad_ids([[1, *row, 2] for row in rows])
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def shaken(module):
    """Statistics and fits that are nothing special."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
        if isinstance(part, FittedTextTower):
            for name, values in part.named_buffers():
                if values.dtype == torch.bool:
                    values.copy_(torch.rand(values.shape) < 0.6)
                elif name in ("weights", "scales"):
                    values.uniform_(0.5, 1)
                else:
                    values.normal_()
            if hasattr(part, "found"):
                part.table.mul_(part.found.unsqueeze(1))
    return module.eval()


@cache
def tower_of(name):
    chosen = TOWERS[name]
    is_cnn = isinstance(chosen, TextCNNSettings)
    stages = ((8, 0), (8, 1)) if name == "strided" else ((8, 1), (12, 1))
    return shaken(TextCNN(WORDS, chosen, stages) if is_cnn else chosen.build(WORDS))


def difference(graph, inputs, expected):
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    made = torch.from_numpy(session.run(None, {name: value.numpy() for name, value in inputs.items()})[0])
    assert made.shape == expected.shape
    return float((made - expected).detach().abs().max())


@pytest.mark.parametrize("name", TOWERS)
@settings(max_examples=25)
@given(rows=texts)
def test_what_a_tower_does_in_an_export_is_what_it_does(name, rows):
    tower, batch = tower_of(name), tokens(rows)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        own = tower(batch)
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        plain = tower(batch)
    torch.testing.assert_close(plain, own, atol=1e-5, rtol=1e-5)


class SeveralTowers(TextTower):
    """Towers side by side, in one export, which takes its time: they do all that any of them does."""

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList(tower_of(name) for name in ("strided", "tfidf", "fisher"))
        self.size = sum(tower.size for tower in self.towers)

    def forward(self, tokens):
        return torch.cat([tower(tokens) for tower in self.towers], 1)


def test_a_graph_of_texts_agrees_at_any_number_and_length():
    matcher = VSESettings(joint=6, image=PIXELS, text=GRU, text_projection=True, words=WORDS).build()
    matcher.text = SeveralTowers()
    matcher.project_text = nn.Linear(matcher.text.size, 6)
    graph = text_graph(matcher.eval()).SerializeToString()

    @settings(max_examples=10)
    @given(texts)
    def agree(rows):
        batch = tokens(rows)
        given = {"ids": batch.ids, "lengths": batch.lengths}
        assert difference(graph, given, matcher.encode_texts(batch)) < 1e-4

    agree()


def test_the_graph_of_a_backbone_agrees_at_any_number():
    image = ViewsSettings(side=32, crops="views")
    matcher = DualPathSettings(joint=6, hidden=5, image=image, text=GRU, words=WORDS).build()
    backbone = matcher.image.backbone  # its first blocks have all that the others have, and an export takes its time
    backbone.blocks = backbone.blocks[:2]
    backbone.head[0] = nn.Conv2d(24, 1280, 1, bias=False)
    shaken(matcher)
    assert image_shape(matcher) == (4, 3, 32, 32)
    graph = image_graph(matcher).SerializeToString()
    for count in (1, 3, 9):  # 9 x 4 crops are more than torch takes at once
        images = torch.randint(256, (count, 4, 3, 32, 32), dtype=torch.uint8)
        assert difference(graph, {"images": images}, matcher.encode_images(images)) < 1e-4
    assert b".py" not in graph  # nobody learns where the files of this machine lie


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
    vocabulary.save(tmp_path / "run/vocabulary.json")
    monkeypatch.setattr(onnx_export, "image_graph", lambda _: zeros(images=(TensorProto.UINT8, 4)))
    monkeypatch.setattr(
        onnx_export, "text_graph", lambda _: zeros(ids=(TensorProto.INT64, 2), lengths=(TensorProto.INT64, 1))
    )
    with pytest.raises(RunError, match=r"run: has no ONNX form: it differs from torch by [1-9].*; use the run itself"):
        onnx_export.export_onnx(tmp_path / "run", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
