"""Extras that import torchvision, which beside a CPU-only torch lacks two operators: they are defined here."""

import importlib
import sys

import pytest
import torch


def forget(*packages):
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            del sys.modules[name]


@pytest.fixture(scope="session")
def torchvision():
    operators = None
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        forget("torchvision")
        operators = torch.library.Library("torchvision", "FRAGMENT")  # lives as long as the fixture
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield importlib.import_module("torchvision")
    del operators


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
