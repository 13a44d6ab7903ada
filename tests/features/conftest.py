"""Packages that import torchvision, random pixels, and a clock that lets hashes be cached."""

import importlib

import pytest
import torch

from diptych.features import hashes


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


@pytest.fixture
def trusted_clock(monkeypatch):
    """Hashes of files that a test has just written are cached, as if the files were old."""
    monkeypatch.setattr(hashes, "CLOCK_RESOLUTION", -(10**12))
