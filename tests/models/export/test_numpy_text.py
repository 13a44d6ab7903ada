"""Which text sides need no graph; that their layers give the vectors of torch is checked by the export itself."""

import pytest
import torch

from diptych.models.export.numpy_text import numpy_text
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.sentence import SentenceSettings

PIXELS = CNNSettings(pixels=16, width=1)


def built(text, **settings):
    with torch.device("meta"):
        return VSESettings(joint=8, image=PIXELS, text=text, words=128_000, **settings).build()


@pytest.mark.parametrize(
    ("text", "options", "kinds"),
    [
        (SentenceSettings(hidden=8), {}, ["standardise", "linear", "relu", "linear", "unit"]),
        (SentenceSettings(hidden=0), {"text_projection": True}, ["linear", "unit"]),
        (
            SentenceSettings(hidden=8, layers="all"),
            {"normalise_texts": False},
            ["standardise", "linear", "relu", "linear"],
        ),
    ],
)
def test_the_layers_after_the_encoder_of_a_package(text, options, kinds):
    matcher = built(text, **options)
    described = numpy_text(matcher)
    assert [layer.kind for layer in described.layers] == kinds
    assert described.outputs == text.layers
    names = {name for layer in described.layers for name in layer.tensors}
    assert names == {name for name in matcher.state_dict() if name.startswith(("text.", "project_text."))}


def test_other_text_sides_need_a_graph():
    assert numpy_text(built(GRUSettings(word=3, hidden=8))) is None
    with torch.device("meta"):
        assert numpy_text(Projected(built(SentenceSettings(hidden=8)), Head(hidden=4, output=4))) is None
