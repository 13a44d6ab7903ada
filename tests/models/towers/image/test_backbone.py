import pytest
import torch
from torch.nn.functional import normalize

from diptych.features.backbones.registry import load_backbone
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.features import FeatureSettings

SIDE = 64  # of the real network, which takes its time at 224


@pytest.fixture(scope="module")
def tower():
    made = BackboneSettings(side=SIDE).build()
    made.load_pretrained()
    return made.eval()


@pytest.fixture(scope="module")
def pixels():
    return torch.randint(0, 256, (3, 2, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_mean_over_the_crops_of_the_pretrained_backbone(tower, pixels):
    with torch.inference_mode():
        made = tower(pixels)
        network = load_backbone("lite0")
        expected = torch.stack([network(crops).mean(0) for crops in pixels])
    torch.testing.assert_close(made, normalize(expected, dim=1), rtol=1e-4, atol=1e-6)


def test_stored_vectors_give_what_pixels_give(tower, pixels):
    with torch.inference_mode():
        stored = torch.stack([tower.backbone(crops).mean(0) for crops in pixels])
        torch.testing.assert_close(tower(stored), tower(pixels), rtol=1e-4, atol=1e-6)


def test_stored_maps_of_frozen_blocks_give_what_pixels_give(tower, pixels):
    tower.backbone.requires_grad_(False).blocks[11].requires_grad_(True)
    with torch.inference_mode():
        maps = torch.stack([tower.backbone.begin(crops, 12).flatten(1) for crops in pixels])
        torch.testing.assert_close(tower(maps), tower(pixels), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(tower(maps[:, :1]), tower(pixels[:, :1]), rtol=1e-4, atol=1e-6)
    tower.backbone.requires_grad_(True)


def test_larger_squares_go_through_the_same_network(tower):
    larger = BackboneSettings(crops="whole", side=96).build()
    assert larger.input.shape == (3, 96, 96)
    assert larger.input.crops.side == 96
    larger.load_state_dict(tower.state_dict())
    pixels = torch.randint(0, 256, (1, 1, 3, 96, 96), dtype=torch.uint8, generator=torch.manual_seed(0))
    with torch.inference_mode():
        cells = tower.backbone.regions(pixels[0])
        assert cells.shape == (1, 9, 1280)
        torch.testing.assert_close(larger.eval()(pixels), normalize(cells.mean(1), dim=1), rtol=1e-4, atol=1e-6)


def test_its_squares_are_those_of_the_backbone_unless_a_side_is_named():
    with torch.device("meta"):
        assert BackboneSettings().build().input.shape == (3, 224, 224)


def test_a_corpus_with_features_needs_no_backbone():
    assert BackboneSettings().for_data((2048,)) == FeatureSettings(shape=(2048,))
    assert BackboneSettings().for_data(None) == BackboneSettings()
