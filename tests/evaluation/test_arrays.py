"""Own arrays compared with sorting, with torchmetrics and with the evaluation of a run; results; bad input."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.arrays import compare_scores, evaluate_embeddings, evaluate_scores
from diptych.evaluation.metrics.paired_difference import paired_difference
from diptych.evaluation.runs import evaluate_encoded
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(40, 8)).astype(np.float32)
TEXTS = (np.repeat(IMAGES, 3, axis=0) + RANDOM.normal(size=(120, 8))).astype(np.float32)
TEXT_GROUPS = np.repeat(np.arange(40), 3)


def sorted_ranks(scores, query_groups, answer_groups):
    """The rank of each row's best positive, by sorting; of equal scores, negatives first and positives not counted."""
    found = []
    for row, group in zip(scores, query_groups, strict=True):
        positive = answer_groups == group
        answers = [(-score, bool(own)) for score, own in zip(row, positive, strict=True)]
        order = sorted(answers)
        first = [own for _, own in order].index(True)
        found.append(1 + sum(not own for _, own in order[:first]))
    return found


@st.composite
def grouped_vectors(draw):
    """Small whole numbers, whose products are exact and often equal, with groups in any order and of any size."""
    names = draw(st.sampled_from([[3, 1, 7], ["dog", "a cat", "x"], [5]]))
    sides = []
    for _ in range(2):
        groups = [*names, *draw(st.lists(st.sampled_from(names), max_size=9))]
        sides.append(draw(st.permutations(groups)))
    size = draw(st.integers(1, 3))
    vectors = [
        draw(
            st.lists(st.lists(st.integers(-2, 2), min_size=size, max_size=size), min_size=len(side), max_size=len(side))
        )
        for side in sides
    ]
    return *(np.array(side, np.float32) for side in vectors), *sides


@settings(max_examples=40)
@given(grouped_vectors(), st.booleans())
def test_ranks_are_those_of_a_sort(case, as_tensor):
    images, texts, image_groups, text_groups = case
    scores = images @ texts.T
    arrays = [torch.from_numpy(array) if as_tensor else array for array in (images, texts, scores)]
    by_embeddings = evaluate_embeddings(*arrays[:2], image_groups, text_groups, similarity="dot", draws=1).folds[0]
    by_scores = evaluate_scores(arrays[2], image_groups, text_groups, draws=1).folds[0]
    for found in (by_embeddings, by_scores):
        assert found.images.tolist() == sorted_ranks(scores, image_groups, np.array(text_groups))
        assert found.texts.tolist() == sorted_ranks(scores.T, text_groups, np.array(image_groups))
        assert found.image_groups.tolist() == list(image_groups)


def test_recalls_are_those_of_torchmetrics(torchvision):
    from torchmetrics.retrieval import RetrievalHitRate

    result = evaluate_embeddings(IMAGES, TEXTS, text_groups=TEXT_GROUPS, cutoffs=(1, 3), draws=1)
    cosines = (
        torch.nn.functional.normalize(torch.from_numpy(IMAGES))
        @ torch.nn.functional.normalize(torch.from_numpy(TEXTS)).T
    )
    positives = torch.arange(40)[:, None] == torch.from_numpy(TEXT_GROUPS)
    for prefix, scores, correct in (("i2t", cosines, positives), ("t2i", cosines.T, positives.T)):
        queries = torch.arange(len(scores))[:, None].expand_as(scores)
        for cutoff in (1, 3):
            metric = RetrievalHitRate(top_k=cutoff)
            # it drops scores that are not positive
            recall = 100 * float(metric((scores + 2).flatten(), correct.flatten(), indexes=queries.flatten()))
            assert getattr(result.metrics, f"{prefix}_r{cutoff}") == pytest.approx(recall, abs=1e-4)
    assert 5 < result.metrics.t2i_r1 < 95, "recalls at the ends would agree by chance"


@pytest.mark.parametrize("options", [{}, {"folds": 4}, {"gallery": 20, "folds": 2}, {"average_precision": True}])
def test_a_run_and_its_encodings_are_measured_alike(options):
    vectors = [torch.nn.functional.normalize(torch.from_numpy(array)) for array in (IMAGES, TEXTS)]
    model = VSESettings(joint=8, text=GRUSettings(hidden=8), image=FeatureSettings(shape=(4,)), words=9)
    encoded = EncodedCorpus(model, *vectors, np.arange(40), TEXT_GROUPS, "digest")
    expected = evaluate_encoded([encoded], **options)
    groups = {"image_groups": [f"photo {row:02}" for row in range(40)]}
    groups["text_groups"] = [groups["image_groups"][group] for group in TEXT_GROUPS]
    for found in (
        evaluate_embeddings(*vectors, text_groups=TEXT_GROUPS, similarity="dot", **options),
        evaluate_embeddings(*(each.numpy() for each in vectors), **groups, similarity="dot", **options),
        evaluate_scores(vectors[0] @ vectors[1].T, **groups, **options),
    ):
        assert found.to_json() == expected.to_json()
    assert evaluate_embeddings(IMAGES, TEXTS, **groups, **options).metrics.to_json() == expected.metrics.to_json()


def test_a_set_model_is_measured_by_its_score():
    model = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9).build()
    regions = torch.randn(24, 3, 4, generator=torch.Generator().manual_seed(0))
    words = torch.randn(48, 5, 4, generator=torch.Generator().manual_seed(1))
    groups = np.arange(24), np.arange(48) // 2
    encoded = EncodedCorpus(model.settings, regions, words, *groups, "digest", encoded_by=model)
    expected = evaluate_encoded([encoded]).to_json()
    assert evaluate_embeddings(regions, words, *groups, similarity=model.score).to_json() == expected


def test_several_images_of_a_text_are_measured_with_map():
    groups = np.arange(40) // 2, np.arange(20)
    assert "i2t_map" in evaluate_embeddings(IMAGES, TEXTS[:20], *groups, draws=5).metrics.to_json()
    without = evaluate_embeddings(IMAGES, TEXTS[:20], *groups, draws=5, average_precision=False)
    assert "i2t_map" not in without.metrics.to_json()


def test_the_result_prints_a_table_and_becomes_json_and_a_frame():
    result = evaluate_embeddings(IMAGES, TEXTS, text_groups=TEXT_GROUPS, draws=20)
    metrics, intervals = result.metrics, result.intervals
    lines = str(result).splitlines()
    assert lines[0] == "one gallery: 40 images, 120 texts"
    assert lines[2].split() == ["R@1", "R@5", "R@10", "median", "mean", "rank"]
    recalls = [f"{metrics.i2t_r1:.1f}", f"{metrics.i2t_r5:.1f}", f"{metrics.i2t_r10:.1f}"]
    assert lines[3].split() == ["image", "to", "text", *recalls, f"{metrics.i2t_median:g}", f"{metrics.i2t_mean:.1f}"]
    assert lines[4].split()[0] == "{:.1f}–{:.1f}".format(*intervals.i2t_r1)
    assert lines[7].split() == ["rsum", f"{metrics.rsum:.1f}"]
    assert lines[-1] == "95% intervals from 20 draws of groups"
    assert repr(result) == f"RetrievalResult(one gallery: 40 images, 120 texts; rsum {metrics.rsum:.1f})"
    assert json.loads(json.dumps(result.to_json()))["metrics"]["t2i_r5"] == metrics.t2i_r5
    frame = result.to_frame().set_index("metric")
    assert list(frame.index) == list(metrics.to_json())
    assert tuple(frame.loc["t2i_r10"]) == (metrics.t2i_r10, *intervals.t2i_r10)
    assert frame.loc["i2t_mean"].isna().tolist() == [False, True, True]


NOISE = RANDOM.normal(size=(40, 120)).astype(np.float32)
SCORES = IMAGES @ TEXTS.T


def test_a_comparison_is_the_paired_difference_of_both_results():
    options = {"text_groups": TEXT_GROUPS, "folds": 2, "cutoffs": (1, 2), "level": 0.9, "draws": 50, "seed": 3}
    results = [evaluate_scores(scores, **options) for scores in (SCORES, SCORES + 3 * NOISE)]
    bootstrap = {"level": 0.9, "draws": 50, "seed": 3}
    expected = paired_difference(results[0].folds, results[1].folds, cutoffs=(1, 2), **bootstrap)
    found = compare_scores(torch.from_numpy(SCORES), SCORES + 3 * NOISE, **options)
    assert found.differences == expected == compare_scores(*results, **bootstrap).differences
    assert found.first.to_json() == results[0].to_json()
    assert found.differences.t2i_r2.value == found.second.metrics.t2i_r2 - found.first.metrics.t2i_r2
    assert found.differences.rsum.is_significant


def test_a_comparison_prints_a_table_and_becomes_json_and_a_frame():
    found = compare_scores(SCORES, SCORES + 3 * NOISE, text_groups=TEXT_GROUPS, draws=50, average_precision=True)
    first, second, change = found.first.metrics.rsum, found.second.metrics.rsum, found.differences.rsum
    lines = str(found).splitlines()
    assert lines[0] == "one gallery: 40 images, 120 texts"
    assert lines[2].split() == ["first", "second", "difference", "interval"]
    row = ["rsum", f"{first:.1f}", f"{second:.1f}", f"{change.value:+.1f}", f"{change.low:+.1f}", "to"]
    assert lines[-3].split() == [*row, f"{change.high:+.1f}", "*"]
    assert lines[-1] == "second minus first; 95% intervals from 50 draws of groups; * excludes 0"
    assert repr(found) == "ScoreComparison(one gallery: 40 images, 120 texts)"
    stored = json.loads(json.dumps(found.to_json()))
    assert stored["first"] == found.first.to_json()
    assert stored["differences"]["differences"]["i2t_map"]["value"] == found.differences.i2t_map.value
    frame = found.to_frame().set_index("metric")
    assert list(frame.columns) == ["first", "second", "difference", "low", "high", "significant"]
    assert tuple(frame.loc["rsum"]) == (first, second, change.value, change.low, change.high, True)


MATCHED = np.eye(4, 5)
RESULT = evaluate_scores(np.eye(4), draws=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, np.arange(4), np.array([0, 1, 2, 2])),
            "image 3: no text of its group 3 to find; leave it out (Corpus.matched does)",
        ),
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, list("abca"), list("abcd")),
            "text 3: no image of its group d to find; leave it out (Corpus.matched does)",
        ),
        (lambda: evaluate_embeddings(MATCHED, MATCHED, folds=5), "5 folds of 4 groups; take between 1 and 4 folds"),
        (lambda: evaluate_embeddings(MATCHED, MATCHED, folds=0), "0 folds of 4 groups; take between 1 and 4 folds"),
        (lambda: evaluate_embeddings(MATCHED, MATCHED, folds=1.5), "1.5 folds of 4 groups; take between 1 and 4 folds"),
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, gallery=2.5),
            "a gallery of 2.5 from a corpus of 4 images; take between 1 and 4",
        ),
        (
            lambda: evaluate_scores(torch.ones(4, 4, device="meta")),
            "scores: on the device 'meta', where tensors have no values; move the model to a real one",
        ),
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, gallery=5),
            "a gallery of 5 from a corpus of 4 images; take between 1 and 4",
        ),
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, list("aabb"), list("abab"), gallery=1),
            "a gallery of 1 images cuts group a apart; take 2 images",
        ),
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, cutoffs=(1, 0)),
            "cutoffs (1, 0); give different integers from 1 on, such as (1, 5, 10)",
        ),
        (
            lambda: evaluate_embeddings(MATCHED, MATCHED, level=95),
            "an interval needs a level between 0 and 1 and at least one draw, not 95 and 1000",
        ),
        (lambda: evaluate_scores(np.eye(4), seed=-1), "seed -1; give an integer from 0 on"),
        (
            lambda: evaluate_scores(np.where(np.arange(100).reshape(10, 10) == 37, np.nan, 0.5)),
            "image 3 and text 7: their score is not a number (rows count from 0)",
        ),
        (
            lambda: evaluate_embeddings(
                np.eye(9), np.eye(9), similarity=lambda images, texts: images @ texts.T + np.nan
            ),
            "image 0 and text 0: their score is not a number (rows count from 0)",
        ),
        (
            lambda: evaluate_scores(np.ones((6, 3)), np.arange(3), np.arange(6) // 2),
            "image_groups: 3 groups for 6 images; are images and texts swapped?",
        ),
        (
            lambda: compare_scores(np.eye(4), np.eye(5)),
            "scores of 4 x 4 and 5 x 5 images and texts; compare scores of the same images and texts",
        ),
        (
            lambda: compare_scores(np.eye(4), [[1.0], [2.0, 3.0]]),
            "scores: rows of different lengths or no numbers; give one array or tensor",
        ),
        (
            lambda: compare_scores(RESULT, np.eye(4)),
            "a result and a score matrix; compare two results, or two matrices",
        ),
        (
            lambda: compare_scores(RESULT, RESULT, folds=2),
            "results bring their own groups, folds, gallery, mAP and cutoffs; give them when evaluating",
        ),
        (
            lambda: compare_scores(RESULT, RESULT, np.arange(4)),
            "results bring their own groups, folds, gallery, mAP and cutoffs; give them when evaluating",
        ),
        (
            lambda: compare_scores(RESULT, evaluate_scores(np.eye(4), cutoffs=[1], draws=2)),
            "results with recall at (1, 5, 10) and at (1,); evaluate both with the same cutoffs",
        ),
        (
            lambda: compare_scores(RESULT, evaluate_scores(np.eye(5), draws=2)),
            "a paired difference needs the ranks of the same images and texts in the same order",
        ),
    ],
)
def test_what_cannot_be_measured_is_an_error(call, message):
    with pytest.raises(ScoreError, match=f"^{re.escape(message)}$"):
        call()


def test_options_are_checked_before_anything_is_scored():
    def similarity(images, texts):
        raise AssertionError("scored")

    for wrong in ({"folds": 9}, {"draws": 0}, {"cutoffs": []}, {"seed": -1}, {"gallery": 0}, {"text_groups": [1]}):
        with pytest.raises(ScoreError):
            evaluate_embeddings(MATCHED, MATCHED, similarity=similarity, **wrong)


def test_infinite_scores_are_in_order():
    scores = np.array([[np.inf, -np.inf], [1.0, -np.inf]])
    assert evaluate_scores(scores, draws=1).folds[0].images.tolist() == [1, 2]
