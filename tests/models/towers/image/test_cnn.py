import pytest
import torch

from diptych.errors import RecipeError
from diptych.models.towers.image.cnn import CNNSettings


def pixels(count, side, seed=0):
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("side", "cells"), [(16, 1), (17, 4), (64, 16)])
def test_the_vector_is_the_last_map_as_a_grid(side, cells):
    tower = CNNSettings(pixels=side, width=2).build().eval()
    assert (tower.input.kind, tower.input.shape) == ("pixels", (3, side, side))
    assert tower.size == 16 * cells
    images = pixels(2, side)
    expected = tower.layers((images.float() - 127.5) / 127.5).flatten(1)
    torch.testing.assert_close(tower(images), expected)
    assert tower(images).shape == (2, tower.size)


def test_where_a_thing_is_makes_a_difference():
    tower = CNNSettings(pixels=32, width=2).build().eval()
    image = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    image[:, :, :8, :8] = 255
    assert not torch.allclose(tower(image), tower(image.flip(3)))


def test_vectors_are_normalised_if_wanted():
    torch.manual_seed(0)
    plain = CNNSettings(pixels=16, width=2).build().eval()
    torch.manual_seed(0)
    unit = CNNSettings(pixels=16, width=2, normalise=True).build().eval()
    vectors = plain(pixels(3, 16))
    torch.testing.assert_close(unit(pixels(3, 16)), vectors / vectors.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("wrong", [{"pixels": 15}, {"pixels": 513}, {"width": 0}], ids=str)
def test_sizes_that_make_no_network_are_refused(wrong):
    with pytest.raises(RecipeError):
        CNNSettings(**wrong)
