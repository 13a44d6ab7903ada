from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.coco_positives import CocoPositives, read_positives
from diptych.evaluation.metrics.precision_at_r import r_precisions
from diptych.evaluation.metrics.relevance import NOT_SEARCHED, Relevance, positive_ranks
from diptych.evaluation.metrics.scores import embedding_score, matrix_score
from diptych.evaluation.metrics.significance import draw_weights
from diptych.evaluation.protocols.eccv import evaluate_encoded_eccv, measure_eccv, selected_score
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from support.coco import Coco

VSE = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)
SCAN = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)
TARGETS = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_r1", "eccv_rprecision", "eccv_map_at_r")


def positives_of(coco):
    """What `read_positives` makes of the lists."""
    images, texts = ({identity: row for row, identity in enumerate(ids)} for ids in (coco.images, coco.texts))

    def relevances(by_image, by_text):
        return {
            "images": Relevance.from_lists(
                {
                    images[image]: {texts.get(text, NOT_SEARCHED) for text in listed}
                    for image, listed in by_image.items()
                }
            ),
            "texts": Relevance.from_lists(
                {texts[text]: {images[image] for image in listed} for text, listed in by_text.items()}
            ),
        }

    own = np.array([images[coco.own[text]] for text in coco.texts])
    ids = np.array(coco.images), np.array(coco.texts)
    return CocoPositives(*ids, own, relevances(*coco.lists["cxc"]), relevances(*coco.lists["eccv"]))


def by_the_package(lists, texts, i2t, t2i):
    """The metrics of the package for sorted lists of ids, under our names and in percent."""
    package = pytest.importorskip("eccv_caption", reason="compares with the package eccv_caption: not installed")
    metrics = package.Metrics.__new__(package.Metrics)
    for name, (by_image, by_text) in lists.items():
        setattr(metrics, f"{name.replace('original', 'coco')}_gts", {"i2t": by_image, "t2i": by_text})
    metrics.coco_ids, metrics.verbose = np.array(texts), False
    return in_percent(metrics, i2t, t2i)


def in_percent(metrics, i2t, t2i):
    found = metrics.compute_all_metrics(i2t, t2i, target_metrics=TARGETS)
    found |= {f"eccv_r{cutoff}": metrics.eccv_recalls({"i2t": i2t, "t2i": t2i}, "all", cutoff) for cutoff in (5, 10)}
    percent = {}
    for name, both in found.items():
        prefix, _, metric = name.partition("_")
        if prefix == "coco":
            prefix, metric = name[:7], name[8:]
        percent |= {f"{prefix}_{direction}_{metric}": 100 * value for direction, value in both.items()}
    return percent


@settings(max_examples=20)
@given(st.integers(0, 9999), st.integers(5, 12), st.integers(1, 3))
def test_all_metrics_equal_those_of_the_package(seed, folds, captions):
    coco = Coco(images=5 * ((folds + 4) // 5), captions=captions, seed=seed)
    random = np.random.default_rng(seed)
    scores = random.normal(size=(len(coco.images), len(coco.texts)))
    i2t = {image: [coco.texts[k] for k in np.argsort(-row)] for image, row in zip(coco.images, scores, strict=True)}
    t2i = {text: [coco.images[k] for k in np.argsort(-row)] for text, row in zip(coco.texts, scores.T, strict=True)}
    theirs = by_the_package(coco.lists, coco.texts, i2t, t2i)
    ours = measure_eccv(matrix_score(torch.from_numpy(scores)), positives_of(coco), draws=2, block=30)
    assert {name: value for name, value in ours.metrics.items() if "rsum" not in name} == pytest.approx(theirs)


@pytest.mark.long
def test_all_metrics_equal_those_of_the_package_on_its_own_lists():
    package = pytest.importorskip("eccv_caption", reason="compares with the package eccv_caption: not installed")
    positives = read_positives()
    random = torch.Generator().manual_seed(0)
    images = torch.randn(5000, 12, generator=random, dtype=torch.float64)  # in double precision nothing ties
    noise = torch.randn(25000, 12, generator=random, dtype=torch.float64)
    texts = images[torch.from_numpy(positives.text_images)] + noise
    score = embedding_score(lambda some, others: some @ others.T, images, texts)
    ours = measure_eccv(score, positives, draws=2)

    def best(some, others, ids):
        """The first answers, more than any list of positives has."""
        tops = [(part @ others.T).topk(60).indices.numpy() for part in some.split(500)]
        return ids[np.concatenate(tops)].tolist()

    i2t = dict(zip(positives.image_ids.tolist(), best(images, texts, positives.text_ids), strict=True))
    t2i = dict(zip(positives.text_ids.tolist(), best(texts, images, positives.image_ids), strict=True))
    metrics = package.Metrics()
    theirs = {name: value for name, value in in_percent_of_lists(metrics, i2t, t2i).items() if "1k" not in name}
    assert len(theirs) == 6 + 6 + 10
    assert {name: ours.metrics[name] for name in theirs} == pytest.approx(theirs)
    assert 1 < ours.metrics["eccv_i2t_map_at_r"] < 95


def in_percent_of_lists(metrics, i2t, t2i):
    """Without the 1K folds, which need whole lists: 125 million ids."""
    metrics.coco_1k_recalls = lambda *_, **__: {}
    return in_percent(metrics, i2t, t2i)


def test_ties_put_negatives_first():
    coco = Coco()
    found = measure_eccv(matrix_score(torch.zeros(10, 20)), positives_of(coco), draws=2).metrics
    assert {found[f"{name}_r1"] for name in ("eccv_i2t", "eccv_t2i", "cxc_i2t", "cxc_t2i", "coco_5k_i2t")} == {0}
    assert found["eccv_t2i_map_at_r"] == found["eccv_t2i_rprecision"] == 0


def test_5k_and_1k_are_the_protocols_of_retrieval_in_the_order_of_the_folds():
    coco = Coco()
    positives = positives_of(coco)
    scores = np.random.default_rng(0).normal(size=(10, 20))
    found = measure_eccv(matrix_score(torch.from_numpy(scores)), positives, draws=30)
    for name, folds in (("coco_5k", 1), ("coco_1k", 5)):
        groups = np.arange(10), positives.text_images
        expected = evaluate_score(matrix_score(torch.from_numpy(scores)), *groups, folds=folds, draws=30)
        for metric in ("i2t_r1", "t2i_r5", "rsum"):
            assert found.metrics[f"{name}_{metric}"] == getattr(expected.metrics, metric)
            assert found.intervals.bounds[f"{name}_{metric}"] == getattr(expected.intervals, metric)


def test_intervals_come_from_draws_of_images_with_their_captions():
    coco = Coco(images=40, captions=3)
    positives = positives_of(coco)
    scores = torch.randn(40, 120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[torch.from_numpy(positives.text_images), torch.arange(120)] += 1.5
    found = measure_eccv(matrix_score(scores), positives, draws=500)
    for name, value in found.metrics.items():
        low, high = found.intervals.bounds[name]
        assert low <= value <= high, name
    drawn = np.vstack(list(draw_weights(500, 40, np.random.default_rng(0))))
    relevance = positives.eccv["texts"]
    precisions = r_precisions(positive_ranks(matrix_score(scores), relevance, "texts"), relevance)
    weights = drawn[:, positives.text_images[relevance.queries]]  # (draws, queries)
    bounds = np.quantile(100 * (weights * precisions).sum(1) / weights.sum(1), [0.025, 0.975])
    assert found.intervals.bounds["eccv_t2i_rprecision"] == pytest.approx(tuple(bounds))


def test_a_result_is_a_table_a_frame_and_json():
    found = measure_eccv(matrix_score(torch.rand(10, 20)), positives_of(Coco()), draws=5)
    told = json.loads(json.dumps(found.to_json()))
    assert (told["protocol"], told["images"], told["texts"]) == ("eccv", 10, 20)
    assert told["metrics"]["eccv_t2i_rprecision"] == found.metrics["eccv_t2i_rprecision"]
    assert told["intervals"]["bounds"].keys() == told["metrics"].keys()
    title, _, header, *rows = str(found).splitlines()
    assert title == "ECCV Caption and CxC: 10 images, 20 texts"
    assert header.split() == ["R@1", "R@5", "R@10", "mAP@R", "R-P"]
    assert [row.split()[:-5] for row in rows[:4:2]] == [["ECCV", "Caption", "i2t"], ["ECCV", "Caption", "t2i"]]
    assert [row.split()[:-3] for row in rows[4:16:2]] == [
        [*name.split(), way] for name in ("CxC", "COCO 5K", "COCO 1K") for way in ("i2t", "t2i")
    ]
    assert len(found.to_frame()) == len(found.metrics)


@pytest.mark.parametrize("model", [VSE, SCAN], ids=["vectors", "sets"])
def test_encodings_are_measured_and_several_are_an_ensemble(model):
    coco = Coco()
    positives, random = positives_of(coco), torch.Generator().manual_seed(1)
    shapes = ((10, 3, 4), (20, 5, 4)) if model is SCAN else ((10, 4), (20, 4))
    encoded = [
        EncodedCorpus(
            model,
            *(torch.nn.functional.normalize(torch.randn(shape, generator=random), dim=-1) for shape in shapes),
            np.arange(10),
            positives.text_images,
            "same",
        )
        for _ in range(2)
    ]
    scores = [each.matcher().score(each.images, each.texts) for each in encoded]
    found = evaluate_encoded_eccv(encoded[:1], positives)
    assert found.metrics == pytest.approx(measure_eccv(matrix_score(scores[0]), positives).metrics)
    both = evaluate_encoded_eccv(encoded, positives)
    assert both.metrics == pytest.approx(measure_eccv(matrix_score(torch.stack(scores).mean(0)), positives).metrics)
    unread = replace(encoded[0], skipped={"a.jpg": "a.jpg: cannot be read"})
    with pytest.raises(
        ScoreError, match=r"^a\.jpg: ECCV Caption and CxC need all 10 images \(a\.jpg: cannot be read\)$"
    ):
        evaluate_encoded_eccv([unread], positives)


def test_a_selection_of_scores():
    matrix = torch.arange(200 * 7.0).view(200, 7)
    images, texts = np.random.default_rng(0).permutation(200)[:150], np.array([6, 0, 3])
    part = selected_score(matrix_score(matrix), images, texts)
    assert (part.images, part.texts) == (150, 3)
    assert torch.equal(part.against(slice(0, 3))(slice(0, 150)), matrix[images][:, texts])
    matrix[images[100], 3] = torch.nan
    with pytest.raises(ScoreError, match=rf"^image {images[100]} and text 3: their score is not a number \(rows count"):
        selected_score(matrix_score(matrix), images, texts)
