"""The mean of regions: what a region model reads, as one vector."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.features.crops import Crops
from diptych.features.regions import Regions
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.region_mean import RegionMeanSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings


def built(**settings):
    with torch.device("meta"):  # the backbone has no part in what the tower does with stored regions
        return RegionMeanSettings(side=64, **settings).build()


def test_it_reads_what_the_region_tower_reads():
    tower, regions = built(), RegionBackboneSettings(side=64)
    with torch.device("meta"):
        assert tower.input == regions.build().input
    assert (tower.input.crops, tower.input.regions) == (Crops(name="whole", side=64), Regions())
    assert tower.size == 1280
    assert tower.pretrained is tower.backbone


@pytest.mark.parametrize("normalised", [True, False])
def test_missing_regions_do_not_count(normalised):
    regions = torch.randn(3, 4, 1280, generator=torch.Generator().manual_seed(0))
    regions[1, 3:] = 0
    regions[2] = 0
    expected = torch.stack([regions[0].mean(0), regions[1, :3].mean(0), torch.zeros(1280)])
    found = built(normalise=normalised)(regions)
    torch.testing.assert_close(found, normalize(expected, dim=1) if normalised else expected)


def test_the_mean_over_the_map_is_the_vector_of_the_whole_photo():
    torch.manual_seed(0)
    tower = RegionMeanSettings(side=64, normalise=False).build().eval()
    pixels = torch.randint(0, 256, (2, 1, 3, 64, 64), dtype=torch.uint8)
    torch.testing.assert_close(tower(pixels), tower.backbone(pixels[:, 0]))
    torch.testing.assert_close(tower(tower.backbone_features(pixels)), tower(pixels))


def test_a_corpus_with_regions_needs_no_backbone():
    assert RegionMeanSettings().for_data(None) == RegionMeanSettings()
    assert RegionMeanSettings().for_data((36, 2048)) == FeatureSettings(shape=(36, 2048), normalise=True)
    assert RegionMeanSettings(normalise=False).for_data((8,)) == FeatureSettings(shape=(8,))
