"""`diptych localize` on a run whose weights are random: where it looks is decided by the boxes that are proposed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.errors import DataError, ImageError, RunError
from diptych.features import proposals
from diptych.features.regions import Regions
from diptych.model import Model
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.regions import RegionSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

COMMAND = ("localize", "--device", "cpu")

BOXES = np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.25, 0.5, 1, 1], [0, 0, 0, 0]], np.float32)
TEXT = GRUSettings(word=4, hidden=8)
VOCABULARY = Vocabulary.from_texts(["a red ball", "the [b]man[/b] 's hat"], 1)


def saved(folder, image):
    torch.manual_seed(0)
    layers = {"image_layers": (8,), "text_layers": (8,)}
    matcher = TwoBranchSettings(image=image, text=TEXT, words=len(VOCABULARY), **layers).build().eval()
    (folder / "best").mkdir(parents=True)
    VOCABULARY.save(folder)
    save_matcher(folder / "best" / "weights.safetensors", matcher, VOCABULARY, {})
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    regions = RegionSettings(side=64, regions=Regions(method="selective-search", count=4))
    return saved(tmp_path_factory.mktemp("runs") / "phrases", regions)


@pytest.fixture
def photo(tmp_path, monkeypatch):
    monkeypatch.setattr(proposals, "proposer", lambda regions: lambda photo: BOXES)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    values = np.random.default_rng(0).integers(0, 255, (80, 200, 3), np.uint8)
    Image.fromarray(values).save(tmp_path / "photos" / "holiday.png")
    return tmp_path / "photos" / "holiday.png"


def test_boxes_are_printed_and_drawn(run, photo, tmp_path, invoke):
    result = invoke(run, photo, "a red ball", "the hat")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "holiday-localized.png").is_file()
    assert "wrote holiday-localized.png" in result.output
    words = result.output.split()
    assert words.count("left") == 2
    expected = Model.load(run, "cpu").localize(Image.open(photo), ["a red ball", "the hat"])
    for (place,) in expected:
        assert f"{place.score:.3f}" in words
        assert all(str(edge) in words for edge in place.box)
    with Image.open(tmp_path / "holiday-localized.png") as drawn:
        assert drawn.size == (640, 256)
        assert (np.asarray(drawn)[:, :] != np.asarray(Image.open(photo).resize(drawn.size))).any()


def test_json_has_boxes_in_pixels_best_first(run, photo, invoke):
    result = invoke(run, photo, "a red ball", "the hat", "--top", "9", "--json", "--out", "x.png")
    told = json.loads(result.stdout)
    assert (told["width"], told["height"]) == (200, 80)
    assert (told["image"], told["picture"]) == (str(photo), "x.png")
    assert [each["phrase"] for each in told["phrases"]] == ["a red ball", "the hat"]
    for each in told["phrases"]:
        boxes = sorted(place["box"] for place in each["places"])
        assert boxes == [[0, 0, 100, 40], [0, 0, 200, 80], [50, 40, 200, 80]]
        scores = [place["score"] for place in each["places"]]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] > scores[-1]


def test_a_phrase_is_never_markup(run, photo, invoke):
    assert "the [b]man[/b]" in invoke(run, photo, "the [b]man[/b]").output


def test_the_image_is_never_overwritten(run, photo, refused):
    before = photo.read_bytes()
    assert "is the input image" in refused(run, photo, "a red ball", "--out", photo)
    for wrong in ("x.jpg", "nowhere/x.png", str(photo.parent)):
        assert "name a .png file" in refused(run, photo, "a red ball", "--out", wrong)
    assert photo.read_bytes() == before


def test_errors_are_one_line(run, photo, tmp_path, monkeypatch, refused):
    reason = refused(run, photo, "a red ball", "zebra unicorn", error=DataError)
    assert reason.startswith("'zebra unicorn': the run knows none of its words")
    assert "a phrase is empty" in refused(run, photo, "")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    refused(run, tmp_path / "broken.png", "a red ball", error=ImageError)
    monkeypatch.setattr(proposals, "proposer", lambda regions: lambda photo: np.zeros_like(BOXES))
    nothing = refused(run, photo, "a red ball")
    assert "holiday.png" in nothing
    assert "no region was proposed" in nothing
    assert not list(tmp_path.glob("*-localized.png"))


def test_a_run_without_regions_says_what_to_train(photo, tmp_path, refused):
    other = saved(tmp_path / "whole", CNNSettings(pixels=32, width=2))
    reason = refused(other, photo, "a red ball", error=RunError)
    assert reason.startswith(f"{other}: ")
    assert "two-branch-phrases-small" in reason
