import importlib
import sys
from unittest.mock import patch

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from diptych.errors import DiptychError, RecipeError
from diptych.features.backbone import Backbone, weights_digest
from diptych.features.backbones.registry import backbone_names, build_backbone, load_backbone, load_classifier

SHORT = ["lite0", "lite1", "lite2", "lite3", "lite4", "resnet50", "resnet152", "vgg16", "vgg19"]


def test_the_short_names():
    assert backbone_names() == SHORT


@pytest.mark.usefixtures("open_clip")
@pytest.mark.parametrize("name", ["lite0", "lite3", "vgg16", "timm:test_vit", "open-clip:ViT-B-32"])
def test_every_name_builds_on_the_meta_device(name):
    with torch.device("meta"):
        backbone = build_backbone(name)
    assert isinstance(backbone, Backbone)
    assert backbone.name == name
    assert all(parameter.is_meta for parameter in backbone.parameters())
    assert any(isinstance(module, nn.Conv2d) for module in backbone.modules())


def test_a_loaded_backbone_is_pretrained_and_in_evaluation_mode():
    first, second = load_backbone("lite0"), load_backbone("lite0")
    assert not first.training
    assert weights_digest(first) == weights_digest(second)
    assert weights_digest(first) != weights_digest(build_backbone("lite0"))


def test_a_built_backbone_takes_the_weights_of_a_loaded_one(bytes_of):
    loaded, built = load_backbone("lite0"), build_backbone("lite0").eval()
    built.load_state_dict(loaded.state_dict())
    assert weights_digest(built) == weights_digest(loaded)
    with torch.no_grad():
        torch.testing.assert_close(built(bytes_of(64, 1)), loaded(bytes_of(64, 1)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("lite9", "did you mean 'lite4'?"),
        ("Lite0", "did you mean 'lite0'?"),
        ("resnet5O", "did you mean 'resnet50'?"),
        ("vgg-19", "did you mean 'vgg19'?"),
        ("tim:resnet50", "did you mean 'timm:resnet50'?"),
        ("openclip:ViT-B-32", "did you mean 'open-clip:ViT-B-32'?"),
        ("", "known: lite0, lite1"),
    ],
)
def test_an_unknown_name_is_offered_the_nearest(name, offer):
    for make in (build_backbone, load_backbone):
        with pytest.raises(RecipeError) as error:
            make(name)
        assert str(error.value).startswith(f"backbone {name!r}: no such name; {offer}")


@example("0:\r")
@settings(max_examples=20)
@given(st.text(max_size=30).filter(lambda name: name not in SHORT and not name.startswith(("timm:", "open-clip:"))))
def test_any_other_name_is_refused_in_one_line(name):
    with pytest.raises(RecipeError) as error:
        build_backbone(name)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("resnet152", "timm", "timm"),
        ("timm:resnet50d", "timm", "timm"),
        ("open-clip:ViT-B-32", "open_clip", "open-clip"),
    ],
)
def test_a_missing_extra_is_an_error_with_the_command_to_install_it(name, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for make in (build_backbone, load_backbone):
        with pytest.raises(DiptychError) as error:
            make(name)
        assert str(error.value) == f"{package} is not installed; run: pip install 'diptych[{extra}]'"


class Asked:
    """A finder that finds nothing, and remembers what it was asked for."""

    def __init__(self):
        self.names = set()

    def find_spec(self, name, path=None, target=None):
        self.names.add(name.split(".")[0])


def test_extras_are_imported_only_when_named(capfd):
    extras, asked = {"timm", "open_clip", "torchvision", "huggingface_hub"}, Asked()
    finders = [asked, *sys.meta_path]
    with patch.dict(sys.modules), patch.object(sys, "meta_path", finders), torch.device("meta"):
        for name in list(sys.modules):  # as in a process that has imported none of them
            if name.split(".")[0] in {"diptych", "efficientnet_lite_pytorch", *extras}:
                del sys.modules[name]
        importlib.import_module("diptych.features.backbones.registry").build_backbone("lite0")
    assert {"diptych", "efficientnet_lite_pytorch"} <= asked.names
    assert not asked.names & extras
    assert capfd.readouterr() == ("", "")


SOURCE = """
from support.backbones import TinyBackbone


def build(name):
    return TinyBackbone()


def load(name, weights=None):
    return TinyBackbone()
"""


def test_an_installed_package_adds_a_source(own_modules):
    own_modules.write("my_backbones", SOURCE)
    own_modules.register("backbones", "mine", "my_backbones")
    own_modules.register("backbones", "timm", "no_such_module")  # a built-in prefix is never replaced
    own_modules.register("backbones", "broken", "no_such_module")
    own_modules.register("backbones", "empty", "json")
    assert type(build_backbone("mine:small")).__name__ == "TinyBackbone"
    assert not load_backbone("mine:small").training
    with pytest.raises(RecipeError, match="did you mean 'mine:small'"):
        build_backbone("mein:small")
    with pytest.raises(RecipeError, match=r"backbone 'broken:x': the plug-in 'broken' of .* \(ModuleNotFoundError"):
        build_backbone("broken:x")
    with pytest.raises(RecipeError, match="'empty' is not a source: it needs build and load"):
        build_backbone("empty:x")
    with pytest.raises(RecipeError, match="backbone 'mine': no such name"):
        build_backbone("mine")


def test_a_classifier_is_found_by_the_name_of_its_backbone(bytes_of):
    layer = load_classifier("lite0")
    assert layer.weight.shape == (1000, 1280)
    with torch.no_grad():
        assert layer(load_backbone("lite0")(bytes_of(64))).shape == (2, 1000)


@pytest.mark.usefixtures("open_clip")
def test_a_source_without_classifiers_is_refused(own_modules):
    own_modules.write("my_backbones", SOURCE)
    own_modules.register("backbones", "mine", "my_backbones")
    for name in ("open-clip:ViT-B-32", "mine:small"):
        with pytest.raises(RecipeError, match=f"backbone '{name}': has no classifier; use a backbone .* such as lite0"):
            load_classifier(name)
