"""Settings of the whole test suite; torchvision, which beside a CPU-only torch lacks two operators; small backbones."""

import importlib
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from diptych.features import proposals
from diptych.models import storage as store
from diptych.models.towers import pretrained
from support.backbones import TinyBackbone
from support.plugins import OwnModules

# Timing never decides a test; several test processes share the cores.
settings.register_profile("diptych", deadline=None, max_examples=60)
settings.load_profile("diptych")
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """No test cuts the power: what is synced need not reach the disk before a test goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)  # a closed file is still refused
        yield


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
def encoder_folder(torchvision):
    """Writes a folder with a small sentence encoder; see `support.sentence`, which imports transformers."""
    return importlib.import_module("support.sentence").encoder_folder


@pytest.fixture(scope="session")
def pairs(torchvision):
    """Writes folders with small pretrained pairs; see `support.pairs`, which imports open_clip and transformers."""
    return importlib.import_module("support.pairs")


@pytest.fixture(scope="session")
def pair_folder(pairs, tmp_path_factory):
    """The folder of a small pair, by its kind; tests read it and do not change it."""
    root, writers = (
        tmp_path_factory.mktemp("pairs"),
        {
            "open_clip": pairs.open_clip_folder,
            "clip": pairs.clip_folder,
            "siglip": pairs.siglip_folder,
            "siglip2": pairs.siglip2_folder,
        },
    )

    def folder(kind):
        return root / kind if (root / kind).exists() else writers[kind](root / kind)

    return folder


@pytest.fixture(scope="session")
def small_backbones():
    """For a while every backbone is tiny, whatever its name."""

    @contextmanager
    def patched():
        with pytest.MonkeyPatch.context() as patch:
            for name in ("build_backbone", "load_backbone"):
                patch.setattr(pretrained, name, lambda *_: TinyBackbone().eval())
            yield

    return patched


@pytest.fixture(scope="session")
def small_regions(small_backbones):
    """For a while every backbone is tiny, and in every photo the things of all photos of a corpus are proposed."""

    @contextmanager
    def patched(corpus):
        edges = [(box.left, box.top, box.right, box.bottom) for some in corpus.boxes for box in some]

        def proposer(regions):
            boxes = np.zeros((regions.count, 4), np.float32)  # behind those of things there is no region
            boxes[: len(edges)] = edges[: regions.count]
            return lambda photo: boxes

        with small_backbones(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(proposals, "proposer", proposer)
            yield

    return patched


def _kill_in_a_save(at, work):
    """Does the work in a child of this process, which is killed in the middle of its save of that number."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)  # no child stays for ever
            torch.set_num_threads(1)
            saves, save_file = [], store.save_file

            def killed_in_the_middle(tensors, path, header):
                saves.append(path)
                save_file(tensors, path, header)
                if len(saves) == at:  # half of the file is on disk, the rename has not happened
                    os.truncate(path, Path(path).stat().st_size // 2)
                    os.kill(os.getpid(), signal.SIGKILL)

            store.save_file = killed_in_the_middle
            work()
        finally:
            os._exit(1)  # never back into the tests
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture(scope="session")
def kill_in_a_save():
    return _kill_in_a_save


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """Writes modules outside of the package, and pretends that packages are installed; see `support.plugins`."""
    modules = OwnModules(tmp_path / "own modules", monkeypatch)
    yield modules
    modules.forget()
