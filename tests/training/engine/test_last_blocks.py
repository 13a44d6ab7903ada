"""The last blocks of towers of several architectures."""

import pytest
import torch
from torch import nn

from diptych.errors import RecipeError
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import ImageTower, TextTower
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.training.engine.last_blocks import last_blocks
from diptych.training.engine.trainable import set_trainable

GRU = {"text": GRUSettings(hidden=5, word=3), "words": 9}


def layers():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


class Transformer(nn.Module):
    """As in CLIP: weights of its own, a stem, blocks, and a norm, registered in this order."""

    def __init__(self):
        super().__init__()
        self.projection = nn.Parameter(torch.zeros(8, 8))
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4), nn.BatchNorm2d(8))
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList(layers() for _ in range(3))
        self.norm = nn.LayerNorm(8)


class Stages(nn.Module):
    """As in a residual network: several sequences beside and within each other."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4), nn.ReLU())
        self.first = nn.Sequential(layers(), layers())
        self.others = nn.Sequential(nn.Sequential(layers(), layers()), nn.Sequential(layers()))
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


class Texts(nn.Module):
    """As in open_clip: the word embedding is registered behind the blocks that read it."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(layers() for _ in range(4))
        self.words = nn.Embedding(9, 8)
        self.norm = nn.LayerNorm(8)


def tower(kind, network):
    class Tower(kind):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, images):
            raise NotImplementedError

    return Tower()


def with_towers(image, text=None):
    """A model of the two towers with a projection of each."""
    matcher = VSESettings(joint=5, image=FeatureSettings(shape=(6,)), **GRU).build()
    matcher.image = tower(ImageTower, image)
    if text is not None:
        matcher.text = tower(TextTower, text)
    return matcher


def test_the_last_blocks_of_each_tower_and_what_is_behind_them():
    assert last_blocks(with_towers(Transformer(), Texts()), "last:2") == [
        "image.network.encoder.blocks.1",
        "image.network.encoder.blocks.2",
        "image.network.norm",
        "text.network.blocks.2",
        "text.network.blocks.3",
        "text.network.norm",
        "project",
        "project_text",
    ]


def test_sequences_beside_and_within_each_other_are_one():
    found = last_blocks(with_towers(Stages()), "last:2")
    assert found[:3] == ["image.network.others.0.1", "image.network.others.1", "image.network.head"]
    found = last_blocks(with_towers(Stages()), "last:4")
    assert found[:3] == ["image.network.first.1", "image.network.others", "image.network.head"]
    assert found[3:] == ["text", "project", "project_text"]  # a GRU has no blocks


def test_only_these_parts_become_trainable():
    matcher = with_towers(Transformer(), Texts())
    set_trainable(matcher, ("last:1",))
    frozen = {name for name, parameter in matcher.named_parameters() if not parameter.requires_grad}
    assert frozen == {
        name
        for name, _ in matcher.named_parameters()
        if name.startswith(("image.network.stem.", "image.network.projection", "text.network.words."))
        or (
            any(f"blocks.{number}." in name for number in range(3))
            and not name.startswith("image.network.encoder.blocks.2.")
        )
    }


def test_the_default_backbone_and_a_text_cnn():
    image, text = BackboneSettings(backbone="lite0"), TextCNNSettings(word=3, length=8)
    with torch.device("meta"):
        matcher = DualPathSettings(joint=6, hidden=5, image=image, text=text, words=9).build()
    assert last_blocks(matcher, "last:1") == [
        "image.backbone.blocks.15",
        "image.backbone.head",
        f"text.blocks.{len(matcher.text.blocks) - 1}",
        "image_head",
        "text_head",
    ]


def test_towers_beneath_heads_are_found():
    found = last_blocks(Projected(with_towers(Transformer()), Head(hidden=3, residual=True)), "last:1")
    assert found[:2] == ["base.image.network.encoder.blocks.2", "base.image.network.norm"]
    assert found[2:] == ["base.text", "base.project", "base.project_text", "head_images", "head_texts"]


@pytest.mark.parametrize(
    ("matcher", "part", "words"),
    [
        (lambda: with_towers(Transformer()), "last:4", "'last:4': image has 3 blocks; name fewer"),
        (lambda: with_towers(Transformer()), "last:0", "'last:0' does not say how many blocks; write last:2"),
        (lambda: with_towers(Transformer()), "last:two", "'last:two' does not say how many blocks"),
        (
            lambda: SCANSettings(image=RegionFeatureSettings(shape=(3, 2)), joint=5, words=9).build(),
            "last:1",
            "no tower of the model is a sequence of blocks; name parts instead",
        ),
    ],
    ids=["too many", "none", "no number", "no blocks"],
)
def test_what_cannot_be_found_is_refused_in_one_line(matcher, part, words):
    with pytest.raises(RecipeError) as caught:
        set_trainable(matcher(), (part,))
    assert words in str(caught.value)
    assert str(caught.value).startswith("trainable: ")
    assert "\n" not in str(caught.value)
