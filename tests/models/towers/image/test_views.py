import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RecipeError
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.readers import CropReader, StoreOptions, image_reader
from diptych.features.regions import Regions
from diptych.models.towers import pretrained
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings

SIDE = 64


@pytest.fixture(scope="module")
def tower():
    made = ViewsSettings(side=SIDE).build()
    made.load_pretrained()
    return made.eval()


@pytest.fixture(scope="module")
def pixels():
    return torch.randint(0, 256, (3, 2, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_vector_of_each_crop(tower, pixels):
    assert tower.input == ImageInput(
        "crops", (3, SIDE, SIDE), Crops(name="mirrored", side=SIDE), Regions(method="crops")
    )
    with torch.inference_mode():
        made = tower(pixels)
        expected = torch.stack([tower.backbone(crops) for crops in pixels])
    assert made.shape == (3, 2, tower.size) == (3, 2, 1280)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-6)


def test_the_mean_of_the_views_is_what_the_other_tower_makes_of_the_crops(tower, pixels):
    mean = BackboneSettings(side=SIDE, normalise=False).build().eval()
    mean.load_state_dict(tower.state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(tower(pixels).mean(1), mean(pixels))


def test_stored_views_are_what_pixels_give(tower, tmp_path):
    photos = make_scenes(train=1, val=1, test=3, texts=1).split("test")
    store = StoreOptions(tmp_path, torch.device("cpu"), workers=0, create=True)
    reader = image_reader(photos, tower.input, tower.backbone, store=store)
    stored, _ = reader.read(np.array([2, 0]))
    assert stored.shape == (2, 2, 1280)
    bytes_, _ = image_reader(photos.pictures, tower.input, tower.backbone).read(np.array([2, 0]))
    with torch.inference_mode():
        from_store = tower(torch.from_numpy(stored))
        torch.testing.assert_close(from_store, tower(torch.from_numpy(bytes_)), rtol=1e-4, atol=1e-5)
    assert torch.equal(from_store, torch.from_numpy(stored))
    assert not torch.allclose(from_store[:, 0], from_store[:, 1], atol=1e-3)  # a mirror is another view


@pytest.mark.parametrize("crops", ["RC", "window"])
def test_a_random_crop_is_one_view(tower, crops):
    photos = make_scenes(train=1, val=1, test=3, texts=1).split("test").pictures
    values, _ = CropReader(photos, tower.input.crops, SIDE, random=crops).read(np.arange(3), (1, 2))
    with torch.inference_mode():
        assert tower(torch.from_numpy(values)).shape == (3, 1, 1280)


def test_each_view_may_be_divided_by_its_length(tower, pixels):
    unit = ViewsSettings(side=SIDE, normalise=True).build().eval()
    unit.load_state_dict(tower.state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(unit(pixels), normalize(tower(pixels), dim=-1))
    stored = torch.randn(2, 4, 1280)
    torch.testing.assert_close(unit(stored), normalize(stored, dim=-1))


def test_crops_go_through_the_backbone_a_part_at_a_time(tower, pixels, monkeypatch):
    monkeypatch.setattr(pretrained, "CROPS_AT_ONCE", 4)
    seen = []
    handle = tower.backbone.register_forward_pre_hook(lambda _module, given: seen.append(len(given[0])))
    with torch.inference_mode():
        tower(pixels)
    handle.remove()
    assert seen == [4, 2]


def test_a_corpus_with_features_needs_no_backbone():
    assert ViewsSettings().for_data((2048,)) == FeatureSettings(shape=(2048,))
    assert ViewsSettings(normalise=True).for_data((36, 2048)) == FeatureSettings(shape=(36, 2048), normalise=True)
    assert ViewsSettings().for_data(None) == ViewsSettings()


def test_views_are_no_regions_that_words_look_at():
    with pytest.raises(RecipeError, match="regions: crops are not regions of a photo; use grid, selective-search or"):
        RegionBackboneSettings(regions=Regions(method="crops")).build()
