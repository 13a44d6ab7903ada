"""`diptych features` as people use it, with a network that takes no time."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.errors import DataError
from diptych.features.backbone import Backbone
from diptych.features.backbones import registry as names

COMMAND = ("features",)


class Tiny(Backbone):
    side, size, grid = 14, 3, (1, 3)
    shown = 0

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def regions(self, pixels):
        return self(pixels)[:, None]

    def forward(self, pixels):
        type(self).shown += len(pixels)
        return pixels.float().mean((2, 3)) * self.scale


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Every backbone but a mistaken one is the tiny one, and the working folder is empty."""
    load = names.load_backbone

    def load_tiny(name, weights=None):
        return load(name) if name == "lite9" else Tiny(name)

    monkeypatch.setattr(names, "load_backbone", load_tiny)
    monkeypatch.setattr(Tiny, "shown", 0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, colour in enumerate(["red", "green", "blue"]):
        Image.new("RGB", (20, 16), colour).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"a {colour} wall\n")
    return folder


def test_features_are_computed_once(photos, tmp_path, invoke):
    first = invoke(photos)
    assert first.exit_code == 0, first.output
    assert "computed 3 of 3 images, 0 were already stored: features/lite0-1C (" in first.stdout
    assert np.load(tmp_path / "features" / "lite0-1C" / "part-00000.npy").shape == (3, 3)
    Tiny.shown = 0
    again = invoke(photos)
    assert "nothing to compute, all 3 images are already stored: features/lite0-1C (" in again.stdout
    assert Tiny.shown == 0
    Image.new("RGB", (20, 16), "white").save(photos / "3.png")
    (photos / "3.txt").write_text("a white wall\n")
    assert "computed 1 of 4 images, 3 were already stored" in invoke(photos).stdout


def test_the_store_has_the_given_settings(photos, tmp_path, invoke, refused):
    options = ("--backbone", "timm:x", "--crops", "10C", "--resize", "short", "--regions", "grid", "--dtype", "float16")
    result = invoke(photos, *options)
    assert result.exit_code == 0, result.output
    rows = np.load(tmp_path / "features" / "timm-x-10C-short-grid-float16" / "part-00000.npy")
    assert rows.shape == (3, 1, 3)
    assert rows.dtype == np.float16
    assert invoke(photos, "--into", tmp_path / "own").exit_code == 0
    assert "crops 1C, not 10C" in refused(photos, "--into", tmp_path / "own", "--crops", "10C")


def test_drawn_scenes_have_features_too(invoke):
    assert "computed 4 of 4 images" in invoke("scenes:train=2,val=1,test=1").stdout


def test_skipped_and_small_photos_are_reported(photos, invoke):
    (photos / "0.png").write_bytes(b"nothing")
    Image.new("RGB", (13, 40), "blue").save(photos / "2.png")
    result = invoke(photos)
    assert f"skipped {photos / '0.png'}: not an image in a known format" in result.stderr
    small = "1 photo was smaller than the crop of 14 x 14, and enlarged; the first is 2.png (13 x 40)"
    assert small in result.stderr
    assert "computed 2 of 2 images" in result.stdout


def test_a_corpus_without_a_readable_photo_is_an_error(photos, refused):
    for photo in photos.glob("*.png"):
        photo.write_bytes(b"nothing")
    assert "no image could be read; the first reason" in refused(photos)


def test_errors_are_one_line(photos, tmp_path, invoke, refused):
    assert "backbone 'lite9': no such name; did you mean" in refused(photos, "--backbone", "lite9")
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in refused(photos, "--into", tmp_path / "file")
    assert "no such" in refused(tmp_path / "nowhere")
    assert "device 'tpu'" in refused(photos, "--device", "tpu")
    assert invoke(photos, "--crops", "5C").exit_code == 2


def test_a_corpus_with_stored_features_is_refused(tmp_path, refused):
    for split in ("train", "dev", "test"):
        np.save(tmp_path / f"{split}_ims.npy", np.zeros((2, 4), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("one\ntwo\n")
    assert "has stored features but no pictures" in refused(tmp_path)


def test_an_interrupt_says_how_to_continue(photos, monkeypatch, invoke):
    def interrupted(self, pixels):
        raise KeyboardInterrupt

    monkeypatch.setattr(Tiny, "forward", interrupted)
    result = invoke(photos)
    assert result.exit_code != 0
    assert "stopped; run the same command again to continue (features/lite0-1C)" in result.stderr


def test_without_a_terminal_progress_is_a_line_per_minute(photos, monkeypatch, invoke):
    from diptych.cli import features

    monkeypatch.setattr(features, "LINE_SECONDS", 0)
    assert "3 of 3 images, " in invoke(photos).stderr


def test_help_shows_examples(invoke):
    printed = invoke("--help").output
    assert "diptych features photos/ --backbone lite0 --crops 1C" in printed


def test_a_locked_store_is_refused(photos, tmp_path, refused):
    from diptych.files import locked_folder

    with locked_folder(tmp_path / "features" / "lite0-1C", DataError):
        assert "is writing to it" in refused(photos)


def test_regions_are_selected_by_method(photos, tmp_path, monkeypatch, invoke):
    from diptych.features import proposals

    monkeypatch.setattr(
        proposals, "proposer", lambda regions: lambda photo: np.ones((regions.count, 4), np.float32) / 2
    )
    result = invoke(photos, "--crops", "whole", "--regions", "selective-search", "--count", 5)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "features" / "lite0-whole-selective-search-5"
    assert np.load(folder / "part-00000.npy").shape == (3, 5, 3)
    assert np.load(folder / "part-00000.boxes.npy").shape == (3, 5, 4)


def test_errors_with_regions_are_one_line(photos, tmp_path, invoke, refused):
    search = ("--regions", "selective-search")
    assert "selective-search needs crops = \"whole\", not '1C'" in refused(photos, *search)
    assert "--edge-model: edge-boxes needs the file" in refused(photos, "--regions", "edge-boxes")
    assert "--edge-model: a structured forest belongs to edge-boxes" in refused(photos, *search, "--edge-model", "x")
    assert "--edge-model: a structured forest belongs to edge-boxes" in refused(photos, "--edge-model", "x")
    edges = ("--crops", "whole", "--regions", "edge-boxes", "--edge-model", tmp_path / "gone.yml")
    assert f"{tmp_path / 'gone.yml'}: no such file of a structured forest" in refused(photos, *edges)
    assert invoke(photos, "--regions", "boxes").exit_code == 2
    assert invoke(photos, *search, "--crops", "whole", "--count", 0).exit_code == 2


def test_a_missing_extra_is_one_line(photos, tmp_path, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "cv2", None)
    words = (photos, "--crops", "whole", "--regions", "selective-search")
    assert "cv2 is not installed; run: pip install 'diptych[regions]'" in refused(*words)
