import torch

from diptych.models.towers.image.features import FeatureSettings


def test_vectors_are_read_as_they_are():
    vectors = torch.randn(3, 4)
    assert torch.equal(FeatureSettings(shape=(4,)).build()(vectors), vectors)


def test_the_mean_is_of_the_regions_that_there_are():
    regions = torch.randn(3, 5, 4)
    regions[1, 2:] = 0
    regions[2] = 0
    means = FeatureSettings(shape=(5, 4)).build()(regions)
    torch.testing.assert_close(means, torch.stack([regions[0].mean(0), regions[1, :2].mean(0), torch.zeros(4)]))
