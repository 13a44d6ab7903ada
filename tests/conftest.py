"""Settings of the whole test suite, and torchvision, which beside a CPU-only torch lacks two operators."""

import importlib
import sys

import pytest
import torch
from hypothesis import settings

# Timing never decides a test; several test processes share the cores.
settings.register_profile("diptych", deadline=None, max_examples=60)
settings.load_profile("diptych")
torch.set_num_threads(1)


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
