"""The graphs against torch, at any number of images and texts and any length."""

from functools import cache

import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from diptych.errors import RunError
from diptych.models.export.onnx_graphs import image_graph, image_shape, text_graph
from diptych.models.matchers.classes import ClassesSettings
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.fused import Fused
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import FittedTextTower, TextTower, Tokens
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text.cnn import TextCNN, TextCNNSettings
from diptych.models.towers.text.fisher import FisherSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.mean import MeanSettings
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.text.tokenisers.token_table import TokenTable

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
    ids, lengths = TokenTable.from_rows([1, *row, 2] for row in rows).batch(range(len(rows)))
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
    matcher = Projected(matcher, Head(hidden=5, residual=True))
    nn.init.normal_(matcher.head_texts[2].weight)  # it starts at zero, where nobody would miss it
    graph = text_graph(matcher.eval()).SerializeToString()

    @settings(max_examples=10)
    @given(texts)
    def agree(rows):
        batch = tokens(rows)
        given = {"ids": batch.ids, "lengths": batch.lengths}
        assert difference(graph, given, matcher.encode_texts(batch)) < 1e-4

    agree()


def shorten(backbone):
    """Its first blocks have all that the others have, and an export takes its time."""
    backbone.blocks = backbone.blocks[:2]
    backbone.head[0] = nn.Conv2d(24, 1280, 1, bias=False)


def test_the_graph_of_a_backbone_agrees_at_any_number():
    image = ViewsSettings(side=32, crops="views")
    matcher = DualPathSettings(joint=6, hidden=5, image=image, text=GRU, words=WORDS).build()
    shorten(matcher.image.backbone)
    shaken(matcher)
    assert image_shape(matcher) == (4, 3, 32, 32)
    graph = image_graph(matcher).SerializeToString()
    for count in (1, 3, 9):  # 9 x 4 crops are more than torch takes at once
        images = torch.randint(256, (count, 4, 3, 32, 32), dtype=torch.uint8)
        assert difference(graph, {"images": images}, matcher.encode_images(images)) < 1e-4
    assert b".py" not in graph  # nobody learns where the files of this machine lie


def test_the_likely_classes_of_a_photo_are_those_of_torch():
    names = tuple(f"class {number}" for number in range(9))
    image = BackboneSettings(crops="1C", side=32, normalise=False)
    matcher = ClassesSettings(image=image, names=names, top=4, temperature=0.1, centre=True).build()
    shorten(matcher.image.backbone)
    shaken(matcher)
    matcher.class_vectors.normal_()
    matcher.centre.normal_()
    graph = image_graph(matcher).SerializeToString()
    for count in (1, 5):
        images = torch.randint(256, (count, *image_shape(matcher)), dtype=torch.uint8)
        assert difference(graph, {"images": images}, matcher.encode_images(images)) < 1e-5


def test_fused_grus_are_exported_side_by_side():
    torch.manual_seed(0)
    parts = [
        VSESettings(joint=joint, image=PIXELS, text=GRUSettings(word=3, hidden=joint), words=WORDS).build()
        for joint in (4, 7)
    ]
    matcher = Fused(parts, (0.25, 0.75)).eval()
    batch = tokens([[3, 4, 5], [], [6, 7, 8, 9, 10]])
    given_texts = {"ids": batch.ids, "lengths": batch.lengths}
    assert difference(text_graph(matcher).SerializeToString(), given_texts, matcher.encode_texts(batch)) < 1e-5


def test_a_gru_beside_another_kind_of_tower_is_refused():
    other = VSESettings(joint=4, image=PIXELS, text=TfidfSettings(), text_projection=True, words=WORDS)
    gru = VSESettings(joint=4, image=PIXELS, text=GRU, words=WORDS)
    with pytest.raises(RunError, match="a GRU beside another kind of text tower cannot be exported"):
        text_graph(Fused([gru.build(), other.build()], (0.5, 0.5)))
