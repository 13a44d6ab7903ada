import pytest
import torch

from diptych.errors import DataError
from diptych.models.towers.region.features import RegionFeatureSettings


def test_stored_regions_pass_as_they_are():
    tower = RegionFeatureSettings().for_data((5, 7)).build()
    assert (tower.input.kind, tower.input.shape, tower.size, tower.pretrained) == ("features", (5, 7), 7, None)
    values = torch.randn(2, 5, 7)
    values[1, 3:] = 0
    assert tower(values) is values


def test_what_is_no_regions_is_refused():
    with pytest.raises(DataError, match="reads stored regions and the corpus has only pictures; use a backbone"):
        RegionFeatureSettings().for_data(None)
    with pytest.raises(DataError, match="the corpus has one vector of size 2048 per image"):
        RegionFeatureSettings().for_data((2048,))
