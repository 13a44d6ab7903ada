import copy

import pytest
import torch
from torch import nn

from diptych.errors import RecipeError
from diptych.models.lora import LoRASettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.words import WordsSettings
from diptych.training.engine.trainable import evaluation_mode, set_trainable, train_mode


def test_parts_become_trainable_by_name():
    matcher = VSESettings(
        joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9
    ).build()
    assert len(set_trainable(matcher, ("all",))) == len(list(matcher.parameters()))
    assert len(set_trainable(matcher, ("project",))) == 2
    assert len(set_trainable(matcher, ("text.words", "project"))) == 3
    assert not matcher.text.gru.weight_hh_l0.requires_grad


@pytest.mark.parametrize(("parts", "moving"), [(("text",), False), (("image",), True), (("all",), True)])
def test_a_frozen_part_keeps_its_statistics(parts, moving):
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=9).build()
    set_trainable(matcher, parts)
    train_mode(matcher)
    before = copy.deepcopy(dict(matcher.named_buffers()))
    matcher.encode_images(torch.randint(0, 255, (4, 3, 16, 16), dtype=torch.uint8))
    changed = any(not torch.equal(value, before[name]) for name, value in matcher.named_buffers())
    assert changed == moving
    assert matcher.image.training == moving


def test_factors_are_trained_beside_the_named_parts():
    image, text = FeatureSettings(shape=(6,)), WordsSettings(word=4, hidden=5)
    matcher = VSESettings(joint=5, image=image, text=text, words=9).build()
    trainable = set_trainable(matcher, ("text.words",), LoRASettings(rank=2, parts=("project", "text")))
    names = {name: parameter for name, parameter in matcher.named_parameters() if parameter.requires_grad}
    assert names.keys() == {
        "text.words.weight",
        *(
            f"{owner}.parametrizations.weight.0.{factor}"
            for owner in ("project", "text.layers.0", "text.layers.3")
            for factor in "ab"
        ),
    }
    assert len(trainable) == len(names)
    train_mode(matcher)
    assert matcher.text.layers[2].training  # dropout is active where something is trained


@pytest.mark.parametrize("parts", [(), ("image",)])
def test_nothing_to_train_is_refused(parts):
    matcher = VSESettings(
        joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9
    ).build()
    with pytest.raises(RecipeError, match="nothing in these parts can be trained"):
        set_trainable(matcher, parts)


def test_an_encoder_is_trained_only_if_it_is_named():
    class Reserved(nn.Module):
        trained_only_by_name = True

        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    matcher = VSESettings(
        joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9
    ).build()
    matcher.text.encoder = Reserved()

    def trained(*parts):
        set_trainable(matcher, parts)
        names = (name for name, parameter in matcher.named_parameters() if parameter.requires_grad)
        return {name.removeprefix("text.encoder.").split(".")[1] for name in names if name.startswith("text.encoder.")}

    assert trained("all") == trained("text") == trained("text", "project") == set()
    assert trained("all", "text.encoder") == trained("text.encoder") == {"0", "1"}
    assert trained("text", "text.encoder.blocks.1") == {"1"}


def test_after_an_evaluation_every_module_is_in_the_mode_that_it_was_in():
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=9).build()
    set_trainable(matcher, ("text",))
    train_mode(matcher)
    before = [module.training for module in matcher.modules()]
    assert len(set(before)) == 2, "this test would prove nothing"
    with pytest.raises(KeyError), evaluation_mode(matcher):
        assert not any(module.training for module in matcher.modules())
        raise KeyError
    assert [module.training for module in matcher.modules()] == before
