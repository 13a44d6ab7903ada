import pytest
import torch

from diptych.errors import RecipeError
from diptych.features.backbone import crop_side, grid_shape, weights_digest
from diptych.features.crops import Crops
from support.backbones import TinyBackbone


class FixedSide(TinyBackbone):
    any_side = False


def test_the_side_of_crops_defaults_to_the_backbones():
    for backbone in (TinyBackbone(), FixedSide()):
        assert crop_side(Crops(), backbone) == 32
        assert crop_side(Crops(side=32), backbone) == 32
    assert crop_side(Crops(side=64), TinyBackbone()) == 64
    with pytest.raises(RecipeError, match="side = 64: tiny reads squares of 32 only; leave it out"):
        crop_side(Crops(side=64), FixedSide())


def test_the_grid_of_larger_crops_has_more_cells():
    backbone = TinyBackbone()
    assert grid_shape(Crops(), backbone) == (16, 6)
    assert backbone.shown == 0  # known without running the network
    assert grid_shape(Crops(side=64), backbone) == (64, 6)


def test_the_digest_depends_on_names_values_and_buffers():
    def digest_after(change):
        network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        torch.nn.init.zeros_(network[0].weight)
        torch.nn.init.zeros_(network[0].bias)
        with torch.no_grad():
            change(network)
        return weights_digest(network)

    unchanged = digest_after(lambda network: None)
    assert unchanged == digest_after(lambda network: network.eval())
    others = {
        digest_after(lambda network: network[0].weight[0, 1].fill_(1)),
        digest_after(lambda network: network[0].weight[1, 0].fill_(1)),
        digest_after(lambda network: network[1].running_mean.fill_(1)),
        digest_after(lambda network: network[0].register_parameter("extra", torch.nn.Parameter(torch.zeros(1)))),
        digest_after(lambda network: network.double()),
    }
    assert len(others | {unchanged}) == 6
