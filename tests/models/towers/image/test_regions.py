import pytest
import torch
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.features.crops import Crops
from diptych.features.regions import Regions
from diptych.models.towers.image.regions import RegionSettings


def built(**settings):
    with torch.device("meta"):  # the backbone has no part in what the tower does
        return RegionSettings(side=128, **settings).build()


@pytest.fixture(scope="module")
def tower():
    return built()


def test_it_reads_the_proposed_regions_of_the_whole_photo(tower):
    assert tower.input.kind == "crops"
    assert tower.input.shape == (3, 128, 128)
    assert tower.input.crops == Crops(name="whole", side=128)
    assert tower.input.regions == Regions(method="selective-search", count=200, smallest=0.05, overlap=0.8)
    assert tower.size == tower.backbone.grid[1] == 1280
    assert tower.pretrained is tower.backbone


def test_a_region_or_all_regions_of_a_photo_become_of_length_one(tower):
    regions = 3 * torch.randn(4, 5, tower.size, generator=torch.Generator().manual_seed(0))
    regions[1, 3:] = 0  # no region
    made = tower(regions)
    for photo in range(4):
        for place in range(5):
            length = regions[photo, place].norm()
            expected = regions[photo, place] / length if length else torch.zeros(tower.size)
            torch.testing.assert_close(made[photo, place], expected)
    torch.testing.assert_close(tower(regions[0]), made[0])
    assert torch.equal(built(normalise=False)(regions), regions)
    torch.testing.assert_close(made, normalize(regions, dim=2))


def test_pixels_are_refused(tower):
    with pytest.raises(RecipeError, match="pass their vectors instead of pixels"):
        tower(torch.zeros(1, 1, 3, 128, 128, dtype=torch.uint8))


def test_a_grid_and_stored_features_are_refused():
    with pytest.raises(RecipeError, match="cells of a grid are not boxes; use selective-search"):
        built(regions=Regions())
    with pytest.raises(RecipeError, match=r"model\.image: 'regions' are pooled from photos.*only features"):
        RegionSettings().for_data((36, 2048))
    assert RegionSettings().for_data(None) == RegionSettings()
