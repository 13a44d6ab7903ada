"""The frozen first steps of a backbone as a backbone of their own."""

import pytest
import torch

from diptych.features.backbone import weights_digest
from diptych.features.backbones.registry import load_backbone
from diptych.features.crops import Crops
from diptych.features.frozen_steps import FrozenSteps, frozen_steps, map_shape, map_spec
from diptych.features.image_input import ImageInput
from support.backbones import TinyBackbone

SIDE = 64
CROPS = Crops(name="mirrored", side=SIDE)


@pytest.fixture(scope="module")
def network():
    return load_backbone("lite0").eval().requires_grad_(False)


@pytest.fixture(scope="module")
def pixels():
    return torch.randint(0, 256, (2, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("steps", [1, 5, 12, 17])
def test_finishing_the_maps_gives_the_vectors(network, pixels, steps):
    first = FrozenSteps(network, steps, CROPS)
    with torch.inference_mode():
        maps = first(pixels)
        assert maps.shape == (2, first.size)
        assert first.map_shape == map_shape(network, steps, SIDE)
        vectors = network.finish(maps.view(2, *first.map_shape), steps)
        torch.testing.assert_close(vectors, network(pixels), rtol=1e-4, atol=1e-5)


def test_frozen_are_the_steps_before_the_first_that_is_trained():
    network = load_backbone("lite0").requires_grad_(False)
    assert frozen_steps(network) == len(network.steps) == 18
    network.blocks[11].requires_grad_(True)
    assert frozen_steps(network) == 12  # the stem and eleven blocks
    network.head.requires_grad_(True)
    assert frozen_steps(network) == 12
    network.stem.requires_grad_(True)
    assert frozen_steps(network) == 0
    assert frozen_steps(TinyBackbone()) == 0  # not a sequence of steps


def test_maps_belong_to_the_weights_of_the_first_steps_alone():
    network = load_backbone("lite0")
    image_input = ImageInput("crops", (3, SIDE, SIDE), CROPS)
    before = map_spec(FrozenSteps(network, 12, CROPS), image_input)
    assert (before.backbone, before.dtype) == ("lite0[:12]", "float16")
    with torch.no_grad():
        network.head[0].weight.add_(1)
    assert map_spec(FrozenSteps(network, 12, CROPS), image_input) == before
    with torch.no_grad():
        network.stem[0].weight.add_(1)
    assert map_spec(FrozenSteps(network, 12, CROPS), image_input).weights != before.weights


def test_the_statistics_of_a_network_in_training_mode_stay_as_they_are():
    network = load_backbone("lite0").train()
    before = weights_digest(network)
    FrozenSteps(network, 12, CROPS)
    assert weights_digest(network) == before


def test_the_steps_that_are_trained_are_not_part_of_it(network):
    first = FrozenSteps(network, 2, CROPS)
    assert len(list(first.parameters())) == sum(len(list(step.parameters())) for step in network.steps[:2])
    assert weights_digest(first) != weights_digest(FrozenSteps(network, 3, CROPS))
    with pytest.raises(NotImplementedError, match="no regions"):
        first.regions(torch.zeros(1))


def test_a_network_that_is_no_sequence_has_no_steps():
    for call in (TinyBackbone().begin, TinyBackbone().finish):
        with pytest.raises(NotImplementedError, match="tiny is not a sequence of steps"):
            call(torch.zeros(1), 1)
