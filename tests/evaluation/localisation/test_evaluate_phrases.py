from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.corpus import Box, Features
from diptych.data.phrases import Mentions, find_mentions
from diptych.errors import DataError, RunError, ScoreError
from diptych.evaluation.localisation import evaluate_phrases as module
from diptych.evaluation.localisation.evaluate_phrases import distinct_phrases, evaluate_phrases, measure_phrases
from diptych.evaluation.localisation.phrase_metrics import correct_regions
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput
from diptych.features.readers import FeatureReader, ProposalReader, RegionReader, StoreOptions, image_reader
from diptych.features.regions import Regions
from diptych.model import Model
from diptych.models.explain.localise import localise_phrases
from diptych.models.text_inputs import TextInputs

CPU = torch.device("cpu")
LEFT, RIGHT, WHOLE, NONE = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0,) * 4


def counted(model, kind):
    return [what for name, what in model.matcher.calls if name == kind]


def chosen(found):
    return [tuple(box) for box in found.boxes.tolist()]


def with_stores(model, folder):
    return Model.from_matcher(model.matcher, model.vocabulary, model.device, stores=folder)


def with_boxes(regions, boxes):
    return FeatureReader(Features([regions]), boxes=Features([boxes]))


def test_every_mention_is_measured_on_its_own_photo(model, corpus):
    found = evaluate_phrases(model, corpus)
    # The second photo has the colours swapped: the other half ranks first, and the whole photo is just correct.
    assert found.ranks.tolist() == [1, 1, 1, 2, 2, 2, 1, 1, 1]
    assert found.images.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert chosen(found) == [LEFT, RIGHT, RIGHT, RIGHT, LEFT, LEFT, LEFT, RIGHT, RIGHT]
    assert found.rows.tolist() == list(range(9))
    assert found.metrics["phrase_r1"] == pytest.approx(200 / 3)
    assert {kind: each["count"] for kind, each in found.by_kind.items()} == {"thing": 9, "left": 3}
    assert found.metrics["ceiling"] == 100


def test_phrases_whose_inputs_are_known_are_not_tokenised_again(model, corpus):
    expected = evaluate_phrases(model, corpus).ranks
    mentions = find_mentions(corpus.split("test"))
    inputs = TextInputs(model.tokeniser.encode_all(distinct_phrases(mentions)))
    untokenised = Model.from_matcher(model.matcher, None, model.device)
    reader = model.torch_engine.image_reader(corpus.split("test"), 0)
    found = measure_phrases(untokenised, mentions, reader, corpus.split("test").image_ids, texts=inputs)
    assert found.ranks.tolist() == expected.tolist()


def test_ranks_equal_one_call_per_mention(model, monkeypatch):
    monkeypatch.setattr(module, "PHOTOS_AT_ONCE", 3)
    random = np.random.default_rng(2)
    boxes = np.sort(random.random((8, 30, 2, 2), np.float32), axis=2).reshape(8, 30, 4)
    boxes[random.random((8, 30)) < 0.3] = 0
    regions = random.random((8, 30, 3), np.float32)
    words = random.choice(["a red thing", "blue", "the green thing", "red and blue"], 60).tolist()
    places = np.sort(random.random((60, 2, 2), np.float32), axis=1).reshape(60, 4)
    rows = np.arange(60)
    mentions = Mentions(words, random.integers(0, 8, 60), rows, rows, places, [()] * 60)
    found = measure_phrases(model, mentions, with_boxes(regions, boxes), [str(row) for row in range(8)])
    expected = []
    for word, image, place in zip(words, mentions.images, places, strict=True):
        (ordered,) = localise_phrases(model.engine, boxes[image], regions[image], [word], top=30)
        right = [bool(correct_regions(np.array([each.box], np.float32), place[None])) for each in ordered]
        expected.append(right.index(True) + 1 if any(right) else math.inf)
    assert found.ranks.tolist() == expected
    assert len(set(expected)) > 6


def test_the_overlap_decides_what_is_correct(model, corpus):
    wide = replace(corpus, boxes=[[Box("1", *WHOLE), Box("2", *WHOLE)]] * 3)
    assert evaluate_phrases(model, wide).metrics["phrase_r1"] == 100  # a half is half of the whole
    strict = evaluate_phrases(model, wide, overlap=0.6)
    assert strict.metrics["phrase_r1"] == 0
    assert (strict.ranks == 2).all()
    corner = replace(corpus, boxes=[[Box("1", 0, 0, 0.1, 0.1), Box("2", *RIGHT)]] * 3)
    assert evaluate_phrases(model, corner).metrics["ceiling"] == pytest.approx(200 / 3)


def test_each_phrase_and_the_regions_of_each_photo_are_encoded_once(model, corpus, monkeypatch, proposed):
    monkeypatch.setattr(module, "PHOTOS_AT_ONCE", 2)
    evaluate_phrases(model, corpus, workers=0)
    assert counted(model, "texts") == [3]  # of nine mentions
    assert counted(model, "images") == [(2, 6, 3), (1, 6, 3)]
    assert counted(model, "score") == [(3, 3)] * 3  # the three valid regions of each photo
    assert proposed.photos == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_photo_that_cannot_be_read_is_left_out_and_named(model, corpus, workers, monkeypatch, broken):
    monkeypatch.setattr(module, "PHOTOS_AT_ONCE", 1)
    lost = replace(corpus, pictures=[corpus.pictures[0], broken, corpus.pictures[2]])
    found = evaluate_phrases(model, lost, workers=workers)
    assert found.skipped == {"1.jpg": "broken.jpg: truncated"}
    assert found.rows.tolist() == [0, 1, 2, 6, 7, 8]
    assert found.images.tolist() == [0, 0, 0, 2, 2, 2]
    assert (found.ranks == 1).all()
    assert len(found.kinds) == 6
    with pytest.raises(ScoreError, match="no phrase could be measured; first reason: broken"):
        evaluate_phrases(model, replace(corpus, pictures=[broken] * 3), workers=workers)


@pytest.mark.parametrize("stored", [False, True])
def test_a_photo_without_regions_is_a_miss(model, corpus, stored):
    boxes = np.array([[WHOLE, LEFT, RIGHT]] * 3, np.float32)
    regions = np.array([[[1, 0, 1], [1, 0, 0], [0, 0, 1]]] * 3, np.float32)
    if stored:
        regions[1] = 0
        made = RegionReader(Features([regions]), corpus.image_ids, boxes=Features([boxes]))
    else:
        boxes[1] = 0
        made = with_boxes(regions, boxes)
    found = measure_phrases(model, find_mentions(corpus), made, corpus.image_ids)
    assert list(found.empty) == ["1.jpg"]
    assert not found.skipped
    assert found.ranks.tolist() == [1, 1, 1, math.inf, math.inf, math.inf, 1, 1, 1]
    assert chosen(found) == [LEFT, RIGHT, RIGHT, NONE, NONE, NONE, LEFT, RIGHT, RIGHT]


def test_padding_is_no_candidate(model, corpus):
    """Its score would be 0, more than that of others."""
    boxes = np.array([[LEFT, RIGHT, NONE, RIGHT]] * 3, np.float32)
    regions = np.array([[[-1, -1, -2], [0, 0, 0], [1, 1, 1], [-2, -1, -1]]] * 3, np.float32)
    made = with_boxes(regions, boxes)
    found = measure_phrases(model, find_mentions(corpus), made, corpus.image_ids)
    assert chosen(found) == [LEFT, RIGHT, RIGHT] * 3
    assert (found.ranks == 1).all()


def test_a_score_that_is_not_a_number_names_the_photo(model, corpus):
    regions = np.ones((3, 2, 3), np.float32)
    regions[2, 1, 0] = np.nan
    boxes = np.array([[LEFT, RIGHT]] * 3, np.float32)
    with pytest.raises(ScoreError, match=r"2\.jpg: a region's score .* not a number"):
        measure_phrases(model, find_mentions(corpus), with_boxes(regions, boxes), corpus.image_ids)


def test_photos_without_a_mention_are_not_read(model, corpus, proposed):
    some = replace(corpus, boxes=[*corpus.boxes[:2], []])
    seen = []
    found = evaluate_phrases(model, some, workers=0, progress=lambda done, total: seen.append((done, total)))
    assert proposed.photos == 2
    assert len(found) == 6
    assert seen == [(2, 2)]
    with pytest.raises(DataError, match="no phrase with a box"):
        evaluate_phrases(model, replace(corpus, boxes=None))


def test_the_feature_store_gives_the_same_result_as_the_photos(model, corpus, tmp_path, proposed, broken):
    lost = replace(corpus, pictures=[broken, *corpus.pictures[1:]])
    fresh = evaluate_phrases(model, lost)
    image_reader(
        lost,
        model.matcher.image_input,
        model.matcher.backbone,
        store=StoreOptions(tmp_path, CPU, workers=0, create=True),
    )
    proposed.photos = 0
    kept = evaluate_phrases(with_stores(model, tmp_path), lost)
    assert proposed.photos == 0
    assert kept.ranks.tolist() == fresh.ranks.tolist()
    assert chosen(kept) == chosen(fresh)
    assert kept.skipped == fresh.skipped
    made = with_stores(model, tmp_path).torch_engine.image_reader(lost)
    assert isinstance(made, RegionReader)
    assert made.boxes.shape == (3, 6, 4)
    assert not made.boxes[0].any()
    assert made.boxes[1, :3].tolist() == [list(WHOLE), list(LEFT), list(RIGHT)]
    assert isinstance(with_stores(model, tmp_path / "none").torch_engine.image_reader(lost), ProposalReader)


def test_a_model_that_reads_no_proposals_is_refused(model, corpus, colour_matcher):
    grid = ImageInput("crops", (3, 32, 32), Crops(name="whole"), Regions())
    for image_input in (ImageInput("crops", (3, 32, 32), Crops()), grid, ImageInput("pixels", (3, 32, 32))):
        other = Model.from_matcher(colour_matcher(model.vocabulary, image_input), model.vocabulary)
        with pytest.raises(RunError, match="two-branch-phrases-small"):
            evaluate_phrases(other, corpus)
