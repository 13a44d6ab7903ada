"""Reading the stored maps of frozen steps; `training/inputs/test_images.py` reads them in a stage."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.features.backbones.registry import load_backbone
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.map_reader import map_reader
from diptych.features.readers import StoreOptions
from support.pictures import BrokenPicture

INPUT = ImageInput("crops", (3, 64, 64), Crops(name="mirrored", side=64))


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """Readers of one crop and of all crops of four pictures, the second of which is broken."""
    corpus = make_scenes(train=4, val=1, test=1).split("train")
    corpus = replace(corpus, pictures=[corpus.pictures[0], BrokenPicture(), *corpus.pictures[2:]])
    network = load_backbone("lite0").requires_grad_(False)
    network.head.requires_grad_(True)
    store = StoreOptions(tmp_path_factory.mktemp("features"), torch.device("cpu"), workers=0, create=True)
    return [map_reader(corpus, INPUT, network, store, one=one) for one in (True, False)]


def test_an_unreadable_image_does_not_shift_the_maps_of_others(readers):
    one, everything = readers
    drawn, readable = one.read(np.array([3, 1, 0]), (5,))
    maps, same = everything.read(np.array([3, 1, 0]))
    assert readable.tolist() == same.tolist() == [True, False, True]
    assert list(one.skipped) == [1]
    for mine, own in zip(drawn, maps, strict=True):
        assert any(np.array_equal(mine[0], crop) for crop in own)


def test_the_crop_depends_on_the_image_and_the_draw_alone(readers):
    one, everything = readers
    maps, _ = everything.read(np.array([0, 2, 3]))
    draws = [one.read(np.array([0, 2, 3]), (0, step))[0] for step in range(12)]
    again = one.read(np.array([3, 0]), (0, 4))[0]
    assert np.array_equal(again, draws[4][[2, 0]])
    for image in range(3):  # both crops are drawn
        assert {np.array_equal(draw[image, 0], maps[image, 0]) for draw in draws} == {True, False}
