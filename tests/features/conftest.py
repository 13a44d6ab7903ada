"""Extras that import torchvision."""

import importlib

import pytest
import torch


@pytest.fixture(scope="session")
def timm(torchvision):
    return importlib.import_module("timm")


@pytest.fixture(scope="session")
def open_clip(timm):
    return importlib.import_module("open_clip")


@pytest.fixture
def bytes_of():
    def make(side, images=2):
        return torch.randint(0, 256, (images, 3, side, side), dtype=torch.uint8, generator=torch.manual_seed(side))

    return make
