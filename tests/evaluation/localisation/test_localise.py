from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from diptych.data.corpus import Box, Corpus, Features, Phrase
from diptych.data.phrases import Mentions, find_mentions
from diptych.errors import DataError, ImageError, RunError, ScoreError
from diptych.evaluation.localisation import localise
from diptych.evaluation.localisation.localise import (
    LocatedRegion,
    check_can_localise,
    check_phrases,
    evaluate_phrases,
    localise_in_picture,
    localise_phrases,
    measure_phrases,
)
from diptych.evaluation.localisation.phrase_metrics import correct_regions
from diptych.features import proposals
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.readers import FeatureReader, ProposalReader, RegionReader, StoreOptions, image_reader
from diptych.features.regions import Regions
from diptych.model import Model
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.two_towers import TwoTowers
from diptych.models.tower import FittedTextTower
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.text.vocabulary import Vocabulary

CPU = torch.device("cpu")
COLOURS = ("red", "green", "blue")
WANTED = ImageInput("crops", (3, 32, 32), Crops(name="whole"), Regions(method="selective-search", count=6))
LEFT, RIGHT, WHOLE, NONE = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0,) * 4


class Tiny(Backbone):
    """A map of 4 x 4 cells: their mean colour."""

    name, side, size, grid, any_side = "tiny", 32, 3, (16, 3), True

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        cells = pixels.float().unfold(2, 8, 8).unfold(3, 8, 8).mean((4, 5))
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class Colourful(TwoTowers):
    """A region fits a phrase as well as its colour is the one that the phrase names; it counts what it encodes."""

    settings: ClassVar = None

    def __init__(self, vocabulary, wanted=WANTED):
        nn.Module.__init__(self)
        self.backbone, self._wanted, self.calls = Tiny(), wanted, []
        table = torch.zeros(len(vocabulary), 3)
        for place, colour in enumerate(COLOURS):
            if colour in vocabulary.ids:
                table[vocabulary.ids[colour], place] = 1
        self.register_buffer("colours", table)

    @property
    def image_input(self):
        return self._wanted

    @property
    def pretrained(self):
        return self.backbone

    def encode_images(self, images):
        self.calls.append(("images", tuple(images.shape)))
        return nn.functional.normalize(images, dim=-1)

    def encode_texts(self, tokens):
        self.calls.append(("texts", len(tokens.ids)))
        return self.colours[tokens.ids].sum(1)

    def score(self, images, texts):
        self.calls.append(("score", (len(images), len(texts))))
        scores = images @ texts.T
        return scores if images.ndim == 2 else scores.amax(1)

    def start_images(self):
        pass

    def start_words(self, vectors, found):
        pass


def with_stores(model, folder):
    return Model.from_matcher(model.matcher, model.vocabulary, model.device, stores=folder)


class Halves:
    """A photo whose left half has one colour and the right half another."""

    def __init__(self, left, right, size=(200, 100)):
        self.left, self.right, self.size = left, right, size

    def load(self):
        photo = Image.new("RGB", self.size, self.left)
        photo.paste(self.right, (self.size[0] // 2, 0, *self.size))
        return photo


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


def halves(regions):
    found = [WHOLE, LEFT, RIGHT]

    def propose(photo):
        halves.asked += 1
        return np.array(found + [NONE] * (regions.count - len(found)), np.float32)

    return propose


@pytest.fixture(autouse=True)
def proposing(monkeypatch):
    halves.asked = 0
    monkeypatch.setattr(proposals, "proposer", halves)


def corpus_of(pictures) -> Corpus:
    """Each photo says what is on its left, its right, and once more on its right."""
    count = len(pictures)
    texts = ["a red thing and a blue thing", "the blue thing"]
    phrases = [
        (Phrase("a red thing", "1", ("left", "thing")), Phrase("a blue thing", "2", ("thing",)), Phrase("air", "9")),
        (Phrase("the blue thing", "2", ("thing",)),),
    ]
    return Corpus(
        "halves",
        [f"{number}.jpg" for number in range(count)],
        np.arange(count),
        np.full(count, "test"),
        texts * count,
        np.arange(count).repeat(2),
        np.full(2 * count, "test"),
        pictures=pictures,
        boxes=[[Box("1", *LEFT), Box("2", *RIGHT)]] * count,
        phrases=phrases * count,
    )


@pytest.fixture
def corpus():
    return corpus_of([Halves("red", "blue"), Halves("blue", "red"), Halves("red", "blue")])


@pytest.fixture
def trained(corpus):
    vocabulary = Vocabulary.from_texts([*corpus.texts, "a green thing"], 1)
    return Model.from_matcher(Colourful(vocabulary).eval(), vocabulary, CPU)


def counted(trained, kind):
    return [what for name, what in trained.matcher.calls if name == kind]


def chosen(found):
    return [tuple(box) for box in found.boxes.tolist()]


def test_every_mention_is_measured_on_its_own_photo(trained, corpus):
    found = evaluate_phrases(trained, corpus)
    # In the second photo the colours are swapped: the other half comes first, and the whole is right by a hair.
    assert found.ranks.tolist() == [1, 1, 1, 2, 2, 2, 1, 1, 1]
    assert found.images.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert chosen(found) == [LEFT, RIGHT, RIGHT, RIGHT, LEFT, LEFT, LEFT, RIGHT, RIGHT]
    assert found.rows.tolist() == list(range(9))
    assert found.metrics["phrase_r1"] == pytest.approx(200 / 3)
    assert {kind: each["count"] for kind, each in found.by_kind.items()} == {"thing": 9, "left": 3}
    assert found.metrics["ceiling"] == 100


def test_ranks_equal_a_call_a_mention(trained, monkeypatch):
    monkeypatch.setattr(localise, "PHOTOS_AT_ONCE", 3)
    random = np.random.default_rng(2)
    boxes = np.sort(random.random((8, 30, 2, 2), np.float32), axis=2).reshape(8, 30, 4)
    boxes[random.random((8, 30)) < 0.3] = 0
    regions = random.random((8, 30, 3), np.float32)
    words = random.choice(["a red thing", "blue", "the green thing", "red and blue"], 60).tolist()
    places = np.sort(random.random((60, 2, 2), np.float32), axis=1).reshape(60, 4)
    rows = np.arange(60)
    said = Mentions(words, random.integers(0, 8, 60), rows, rows, places, [()] * 60)
    found = measure_phrases(trained, said, with_boxes(regions, boxes), [str(row) for row in range(8)])
    expected = []
    for word, image, place in zip(words, said.images, places, strict=True):
        (ordered,) = localise_phrases(trained, boxes[image], regions[image], [word], top=30)
        right = [bool(correct_regions(np.array([each.box], np.float32), place[None])) for each in ordered]
        expected.append(right.index(True) + 1 if any(right) else math.inf)
    assert found.ranks.tolist() == expected
    assert len(set(expected)) > 6


def with_boxes(regions, boxes):
    return FeatureReader(Features([regions]), boxes=Features([boxes]))


def test_the_overlap_decides_what_is_right(trained, corpus):
    wide = replace(corpus, boxes=[[Box("1", *WHOLE), Box("2", *WHOLE)]] * 3)
    assert evaluate_phrases(trained, wide).metrics["phrase_r1"] == 100  # a half is half of the whole
    strict = evaluate_phrases(trained, wide, overlap=0.6)
    assert strict.metrics["phrase_r1"] == 0
    assert (strict.ranks == 2).all()
    corner = replace(corpus, boxes=[[Box("1", 0, 0, 0.1, 0.1), Box("2", *RIGHT)]] * 3)
    assert evaluate_phrases(trained, corner).metrics["ceiling"] == pytest.approx(200 / 3)


def test_phrases_are_encoded_once_and_regions_once_a_photo(trained, corpus, monkeypatch):
    monkeypatch.setattr(localise, "PHOTOS_AT_ONCE", 2)
    evaluate_phrases(trained, corpus, workers=0)
    assert counted(trained, "texts") == [3]  # of nine mentions
    assert counted(trained, "images") == [(2, 6, 3), (1, 6, 3)]
    assert counted(trained, "score") == [(3, 3)] * 3  # the three regions that are there
    assert halves.asked == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_photo_that_cannot_be_read_is_left_out_and_named(trained, corpus, workers, monkeypatch):
    monkeypatch.setattr(localise, "PHOTOS_AT_ONCE", 1)
    lost = replace(corpus, pictures=[corpus.pictures[0], Broken(), corpus.pictures[2]])
    found = evaluate_phrases(trained, lost, workers=workers)
    assert found.skipped == {"1.jpg": "broken.jpg: truncated"}
    assert found.rows.tolist() == [0, 1, 2, 6, 7, 8]
    assert found.images.tolist() == [0, 0, 0, 2, 2, 2]
    assert (found.ranks == 1).all()
    assert len(found.kinds) == 6
    with pytest.raises(ScoreError, match="no phrase could be measured; first reason: broken"):
        evaluate_phrases(trained, replace(corpus, pictures=[Broken()] * 3), workers=workers)


@pytest.mark.parametrize("stored", [False, True])
def test_a_photo_without_regions_is_a_miss(trained, corpus, stored):
    boxes = np.array([[WHOLE, LEFT, RIGHT]] * 3, np.float32)
    regions = np.array([[[1, 0, 1], [1, 0, 0], [0, 0, 1]]] * 3, np.float32)
    if stored:
        regions[1] = 0
        made = RegionReader(Features([regions]), corpus.image_ids, boxes=Features([boxes]))
    else:
        boxes[1] = 0
        made = with_boxes(regions, boxes)
    found = measure_phrases(trained, find_mentions(corpus), made, corpus.image_ids)
    assert list(found.empty) == ["1.jpg"]
    assert not found.skipped
    assert found.ranks.tolist() == [1, 1, 1, math.inf, math.inf, math.inf, 1, 1, 1]
    assert chosen(found) == [LEFT, RIGHT, RIGHT, NONE, NONE, NONE, LEFT, RIGHT, RIGHT]


def test_a_region_that_is_not_there_is_no_candidate(trained, corpus):
    """Its score would be 0, more than that of others."""
    boxes = np.array([[LEFT, RIGHT, NONE, RIGHT]] * 3, np.float32)
    regions = np.array([[[-1, -1, -2], [0, 0, 0], [1, 1, 1], [-2, -1, -1]]] * 3, np.float32)
    made = with_boxes(regions, boxes)
    found = measure_phrases(trained, find_mentions(corpus), made, corpus.image_ids)
    assert chosen(found) == [LEFT, RIGHT, RIGHT] * 3
    assert (found.ranks == 1).all()


def test_a_score_that_is_not_a_number_names_the_photo(trained, corpus):
    regions = np.ones((3, 2, 3), np.float32)
    regions[2, 1, 0] = np.nan
    boxes = np.array([[LEFT, RIGHT]] * 3, np.float32)
    with pytest.raises(ScoreError, match=r"2\.jpg: a region's score .* not a number"):
        measure_phrases(trained, find_mentions(corpus), with_boxes(regions, boxes), corpus.image_ids)


def test_photos_without_a_mention_are_not_read(trained, corpus):
    some = replace(corpus, boxes=[*corpus.boxes[:2], []])
    seen = []
    found = evaluate_phrases(trained, some, workers=0, progress=lambda done, total: seen.append((done, total)))
    assert halves.asked == 2
    assert len(found) == 6
    assert seen == [(2, 2)]
    with pytest.raises(DataError, match="no phrase with a box"):
        evaluate_phrases(trained, replace(corpus, boxes=None))


def test_the_store_gives_what_fresh_photos_give(trained, corpus, tmp_path):
    lost = replace(corpus, pictures=[Broken(), *corpus.pictures[1:]])
    fresh = evaluate_phrases(trained, lost)
    image_reader(lost, WANTED, trained.matcher.backbone, store=StoreOptions(tmp_path, CPU, workers=0, create=True))
    halves.asked = 0
    kept = evaluate_phrases(with_stores(trained, tmp_path), lost)
    assert halves.asked == 0
    assert kept.ranks.tolist() == fresh.ranks.tolist()
    assert chosen(kept) == chosen(fresh)
    assert kept.skipped == fresh.skipped
    made = with_stores(trained, tmp_path).torch_engine.image_reader(lost)
    assert isinstance(made, RegionReader)
    assert made.boxes.shape == (3, 6, 4)
    assert not made.boxes[0].any()
    assert made.boxes[1, :3].tolist() == [list(WHOLE), list(LEFT), list(RIGHT)]
    assert isinstance(with_stores(trained, tmp_path / "none").torch_engine.image_reader(lost), ProposalReader)


def test_all_phrases_of_a_photo_in_one_product(trained):
    boxes = np.array([LEFT, NONE, RIGHT, WHOLE], np.float32)
    regions = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 2]], np.float32)
    red, blue = localise_phrases(trained, boxes, regions, ["a red thing", "a blue thing"], top=5)
    assert trained.matcher.calls == [("images", (3, 3)), ("texts", 2), ("score", (3, 2))]
    assert [place.box for place in red] == [LEFT, WHOLE, RIGHT]
    assert [place.box for place in blue] == [RIGHT, WHOLE, LEFT]
    assert [place.score for place in red] == pytest.approx([1, 5**-0.5, 0])
    assert [len(places) for places in localise_phrases(trained, boxes, regions, ["red", "blue"])] == [1, 1]
    assert localise_phrases(trained, np.zeros((4, 4), np.float32), regions, ["red"]) == [[]]
    assert localise_phrases(trained, boxes, regions, []) == []


def test_a_fresh_picture_is_answered_in_its_own_pixels(trained):
    found = localise_in_picture(trained, Halves("red", "blue", size=(301, 90)), ["the blue thing", "red"], top=2)
    assert halves.asked == 1
    assert [place.box for place in found[0]] == [(150, 0, 301, 90), (0, 0, 301, 90)]
    assert found[1][0].box == (0, 0, 150, 90)
    assert found[0][0].score > found[0][1].score
    with pytest.raises(ImageError, match="truncated"):
        localise_in_picture(trained, Broken(), ["red"])


def test_a_picture_without_a_region_says_so(trained, monkeypatch):
    monkeypatch.setattr(proposals, "proposer", lambda regions: lambda photo: np.zeros((regions.count, 4), np.float32))
    with pytest.raises(DataError, match="no proposed region"):
        localise_in_picture(trained, Halves("red", "blue"), ["red"])


def test_places_in_pixels_are_inside_and_have_an_area():
    assert LocatedRegion((0.999, 0.0, 1.0, 0.001), 1.0).within(10, 20).box == (9, 0, 10, 1)
    assert LocatedRegion((0.25, 0.5, 0.75, 1.0), 1.0).within(100, 40).box == (25, 20, 75, 40)


class Fitted(FittedTextTower):
    def __init__(self, word):
        super().__init__()
        self.word = word

    def fit(self, texts, vectors, progress=None):
        pass

    def known(self, tokens):
        return (tokens.ids == self.word).any(1)

    def forward(self, tokens):
        return tokens.ids


def test_phrases_that_are_nothing_to_the_model_are_named(trained):
    with pytest.raises(DataError, match="'zebra unicorn': the run knows none of its words"):
        check_phrases(trained, ["a red thing", "zebra unicorn"])
    with pytest.raises(DataError, match="a phrase is empty"):
        check_phrases(trained, ["red", "  "])
    check_phrases(trained, ["red zebra"])
    trained.matcher.tower = Fitted(trained.vocabulary.ids["red"])
    check_phrases(trained, ["red zebra"])
    with pytest.raises(DataError, match="'blue thing': the run knows none"):  # the tower has no vector for them
        localise_in_picture(trained, Halves("red", "blue"), ["red", "blue thing"])


def test_a_model_that_reads_no_proposals_is_refused(trained, corpus):
    check_can_localise(trained.matcher)
    grid = ImageInput("crops", (3, 32, 32), Crops(name="whole"), Regions())
    for wanted in (ImageInput("crops", (3, 32, 32), Crops()), grid, ImageInput("pixels", (3, 32, 32))):
        other = Model.from_matcher(Colourful(trained.vocabulary, wanted), trained.vocabulary, CPU)
        with pytest.raises(RunError, match="two-branch-phrases-small"):
            evaluate_phrases(other, corpus)
    scan = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9).build()
    with pytest.raises(RunError, match="two-branch-phrases-small"):
        check_can_localise(scan)
