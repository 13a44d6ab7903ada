from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from diptych.errors import DataError, ImageError, RunError
from diptych.features import proposals
from diptych.models.explain.localise import (
    LocatedRegion,
    check_can_localise,
    check_phrases,
    localise_in_picture,
    localise_phrases,
)
from diptych.models.matchers.scan import SCANSettings
from diptych.models.tower import FittedTextTower
from diptych.models.towers.region.features import RegionFeatureSettings

LEFT, RIGHT, WHOLE, NONE = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0,) * 4


def test_all_phrases_of_a_photo_are_scored_in_one_product(model):
    boxes = np.array([LEFT, NONE, RIGHT, WHOLE], np.float32)
    regions = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 2]], np.float32)
    red, blue = localise_phrases(model.engine, boxes, regions, ["a red thing", "a blue thing"], top=5)
    assert model.matcher.calls == [("images", (3, 3)), ("texts", 2), ("score", (3, 2))]
    assert [region.box for region in red] == [LEFT, WHOLE, RIGHT]
    assert [region.box for region in blue] == [RIGHT, WHOLE, LEFT]
    assert [region.score for region in red] == pytest.approx([1, 5**-0.5, 0])
    assert [len(regions) for regions in localise_phrases(model.engine, boxes, regions, ["red", "blue"])] == [1, 1]
    assert localise_phrases(model.engine, np.zeros((4, 4), np.float32), regions, ["red"]) == [[]]
    assert localise_phrases(model.engine, boxes, regions, []) == []


def test_regions_of_any_picture_are_in_its_pixels(model, proposed, broken, two_colours):
    found = localise_in_picture(
        model.engine, two_colours("red", "blue", size=(301, 90)), ["the blue thing", "red"], top=2
    )
    assert proposed.photos == 1
    assert [region.box for region in found[0]] == [(150, 0, 301, 90), (0, 0, 301, 90)]
    assert found[1][0].box == (0, 0, 150, 90)
    assert found[0][0].score > found[0][1].score
    with pytest.raises(ImageError, match="truncated"):
        localise_in_picture(model.engine, broken, ["red"])


def test_a_picture_without_a_proposed_region_is_refused(model, monkeypatch, proposed, two_colours):
    monkeypatch.setattr(proposals, "proposer", lambda regions: lambda photo: np.zeros((regions.count, 4), np.float32))
    with pytest.raises(DataError, match="the photo: no region was proposed"):
        localise_in_picture(model.engine, two_colours("red", "blue"), ["red"])


def test_regions_in_pixels_are_inside_and_have_an_area():
    assert LocatedRegion((0.999, 0.0, 1.0, 0.001), 1.0).to_pixels(10, 20).box == (9, 0, 10, 1)
    assert LocatedRegion((0.25, 0.5, 0.75, 1.0), 1.0).to_pixels(100, 40).box == (25, 20, 75, 40)


class KnowsOneWord(FittedTextTower):
    def __init__(self, word):
        super().__init__()
        self.word = word

    def fit(self, texts, vectors, progress=None):
        pass

    def known(self, tokens):
        return (tokens.ids == self.word).any(1)

    def forward(self, tokens):
        return tokens.ids


def test_phrases_without_a_known_word_are_refused(model, two_colours):
    with pytest.raises(DataError, match="'zebra unicorn': the run knows none of its words"):
        check_phrases(model.engine, ["a red thing", "zebra unicorn"])
    with pytest.raises(DataError, match="a phrase is empty"):
        check_phrases(model.engine, ["red", "  "])
    check_phrases(model.engine, ["red zebra"])
    model.matcher.tower = KnowsOneWord(model.vocabulary.ids["red"])
    check_phrases(model.engine, ["red zebra"])
    with pytest.raises(DataError, match="'blue thing': the run knows none"):  # the tower has no vector for them
        localise_in_picture(model.engine, two_colours("red", "blue"), ["red", "blue thing"])


def test_a_model_that_scores_all_regions_together_is_refused(model):
    check_can_localise(model.matcher)
    scan = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9).build()
    with pytest.raises(RunError, match="two-branch-phrases-small"):
        check_can_localise(scan)


def test_a_model_localises_in_whatever_an_image_is(model, proposed, two_colours, tmp_path):
    photo = two_colours("red", "blue").load()
    photo.save(tmp_path / "photo.png")
    wanted = localise_in_picture(model.engine, two_colours("red", "blue"), ["the blue thing", "red"], top=2)
    assert wanted[0][0].box == (100, 0, 200, 100)
    for image in (photo, tmp_path / "photo.png", str(tmp_path / "photo.png"), np.asarray(photo)):
        assert model.localize(image, ["the blue thing", "red"], top=2) == wanted
    assert len(model.localize(photo, ["red"])[0]) == 1
    assert model.localize(photo, []) == []


def test_a_model_is_asked_for_a_list_of_phrases(model, two_colours):
    photo = two_colours("red", "blue").load()
    for phrases, top, reason in (
        ("red", 1, r"phrases: one string, not a list; pass \[phrase\]"),
        (["red", 3], 1, r"phrases\[1\]: 3 is not a string"),
        (["red"], 0, "top=0: not a whole number of at least 1"),
    ):
        with pytest.raises(DataError, match=reason):
            model.localize(photo, phrases, top)
    with pytest.raises(ImageError, match="the image: floating-point pixels"):
        model.localize(Image.new("F", (2, 2)), ["red"])


def test_a_photo_with_proposed_regions_is_a_set_and_a_phrase_a_vector(model, two_colours):
    photos = [two_colours("red", "blue").load(), two_colours("blue", "green").load()]
    images, texts = model.encode_images(photos), model.encode_texts(["red", "green"])
    assert (images.shape, texts.shape) == ((2, 3, 3), (2, 3))
    scores = model.score(images, texts)
    assert scores.argmax(0).tolist() == [0, 1]
    assert model.explain(photos[0], "a red thing").by_importance[0].word == "red"
