"""Towers with a backbone, by the real network at a small size."""

from pathlib import Path

import pytest
import torch
from torch import nn

from diptych.features.backbones.registry import load_backbone
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.pretrained import crop_vectors

SIDE = 64


@pytest.fixture(scope="module")
def pixels():
    return torch.randint(0, 256, (3, 2, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_weights_are_random_until_the_pretrained_ones_are_loaded():
    tower, wanted = BackboneSettings(side=SIDE).build(), load_backbone("lite0").state_dict()
    name = next(name for name, value in wanted.items() if value.dim() == 4)
    assert not torch.equal(tower.backbone.state_dict()[name], wanted[name])
    tower.load_pretrained()
    assert all(torch.equal(value, wanted[name]) for name, value in tower.backbone.state_dict().items())
    assert tower.pretrained is tower.backbone


def test_a_file_of_weights_replaces_those_of_the_backbone(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "diptych.models.towers.pretrained.load_backbone",
        lambda *given: asked.append(given) or load_backbone("lite0"),
    )
    for weights in ("mine.safetensors", None):
        BackboneSettings(side=SIDE, weights=weights).build().load_pretrained()
    assert asked == [("lite0", Path("mine.safetensors")), ("lite0", None)]


def test_crops_are_encoded_one_by_one(pixels, monkeypatch):
    monkeypatch.setattr("diptych.models.towers.pretrained.CROPS_AT_ONCE", 4)
    backbone = BackboneSettings(side=SIDE).build().eval().backbone
    with torch.inference_mode():
        expected = torch.stack([backbone(crops) for crops in pixels])
        torch.testing.assert_close(crop_vectors(backbone, pixels), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batch_norm", "most"), [("frozen", 4), ("trained", 6)])
def test_only_a_backbone_that_estimates_statistics_sees_the_whole_batch(batch_norm, most, pixels, monkeypatch):
    monkeypatch.setattr("diptych.models.towers.pretrained.CROPS_AT_ONCE", 4)
    tower = BackboneSettings(side=SIDE, batch_norm=batch_norm).build().train()
    seen = []
    tower.backbone.register_forward_pre_hook(lambda _module, given: seen.append(len(given[0])))
    tower(pixels)
    assert max(seen) == most
    assert sum(seen) == 6


@pytest.mark.parametrize(("batch_norm", "moves"), [("frozen", False), ("trained", True)])
def test_batch_statistics_move_only_if_they_are_trained(batch_norm, moves, pixels):
    tower = BackboneSettings(side=SIDE, batch_norm=batch_norm).build()
    norms = [module for module in tower.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    before = [norm.running_mean.clone() for norm in norms]
    tower.train()
    tower(pixels)
    assert any(not torch.equal(norm.running_mean, old) for norm, old in zip(norms, before, strict=True)) is moves
