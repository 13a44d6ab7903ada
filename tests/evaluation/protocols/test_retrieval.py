from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.protocols.retrieval import RetrievalResult, evaluate_score

IMAGE_GROUPS = np.arange(100) + 1000
TEXT_GROUPS = np.arange(300) // 3 + 1000
SCORES = torch.randn(100, 300, generator=torch.Generator().manual_seed(0))
SCORES[IMAGE_GROUPS[:, None] == TEXT_GROUPS] += 1.5


def run(**protocol: int) -> RetrievalResult:
    return evaluate_score(matrix_score(SCORES), IMAGE_GROUPS, TEXT_GROUPS, draws=50, **protocol)


def alone(images: slice) -> dict[str, float]:
    """The metrics of a corpus that has only these images and their texts."""
    texts = slice(3 * images.start, 3 * images.stop)
    part = matrix_score(SCORES[images, texts])
    return metrics_from_ranks(ranks(part, IMAGE_GROUPS[images], TEXT_GROUPS[texts])).to_json()


def test_one_gallery_ranks_everything():
    result = run()
    assert result.metrics.to_json() == alone(slice(0, 100))
    assert (result.protocol, result.images, result.texts) == ("one gallery", 100, 300)


def test_the_first_images_are_a_gallery_of_their_own():
    result = run(gallery=30)
    assert result.metrics.to_json() == alone(slice(0, 30))
    assert (result.protocol, result.images, result.texts) == ("first 30 images", 30, 90)
    assert result.folds[0].image_rows.tolist() == list(range(30))


def test_folds_are_consecutive_and_their_metrics_averaged():
    result = run(folds=4)
    parts = [alone(slice(start, start + 25)) for start in range(0, 100, 25)]
    expected = {name: np.mean([part[name] for part in parts]) for name in parts[0]}
    assert result.metrics.to_json() == pytest.approx(expected)
    assert result.protocol == "4 folds of 25 images"
    assert [fold.text_rows[0] for fold in result.folds] == [0, 75, 150, 225]
    assert result.metrics.to_json() != pytest.approx(alone(slice(0, 100))), "folds must be easier than the whole"


def test_folds_of_a_gallery_may_differ_in_size():
    result = run(folds=3, gallery=31)
    assert result.protocol == "3 folds of 10 to 11 of the first 31 images"
    assert [len(fold.images) for fold in result.folds] == [11, 10, 10]


def test_folds_never_cut_a_group():
    # two photos of each of six people, the second round after the first: a fold of rows would part them
    image_groups, text_groups = np.array([5, 3, 4, 9, 8, 7] * 2), np.array([7, 8, 9, 3, 4, 5])
    result = evaluate_score(matrix_score(torch.rand(12, 6)), image_groups, text_groups, folds=3, draws=5)
    assert [fold.image_rows.tolist() for fold in result.folds] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert [fold.text_rows.tolist() for fold in result.folds] == [[3, 5], [2, 4], [0, 1]]


def test_a_gallery_never_cuts_a_group():
    image_groups, text_groups = np.array([5, 5, 3, 3, 3]), np.array([3, 5])
    score = matrix_score(torch.rand(5, 2))
    assert evaluate_score(score, image_groups, text_groups, gallery=2).images == 2
    with pytest.raises(ScoreError, match="gallery of 4 images cuts group 3 apart; take 2 or 5 images"):
        evaluate_score(score, image_groups, text_groups, gallery=4)
    with pytest.raises(ScoreError, match="gallery of 1 images cuts group 5 apart; take 2 images"):
        evaluate_score(score, image_groups, text_groups, gallery=1)


@pytest.mark.parametrize("folds", [0, 101])
def test_more_folds_than_groups_are_refused(folds: int):
    with pytest.raises(ScoreError, match=f"^{folds} folds of 100 groups; take between 1 and 100 folds$"):
        run(folds=folds)


@pytest.mark.parametrize("gallery", [0, 101])
def test_a_gallery_larger_than_the_corpus_is_refused(gallery: int):
    with pytest.raises(ScoreError, match=f"gallery of {gallery} from a corpus of 100 images"):
        run(gallery=gallery)


@pytest.mark.parametrize("folds", [1, 2])
def test_a_text_without_an_image_is_refused_also_with_folds(folds: int):
    groups = np.append(TEXT_GROUPS[:-1], 7)
    with pytest.raises(ScoreError, match=r"^text 299: no image of its group 7"):
        evaluate_score(matrix_score(SCORES), IMAGE_GROUPS, groups, folds=folds)


def test_intervals_contain_the_metrics_and_depend_on_the_seed():
    result = run(folds=2)
    named = result.metrics.to_json()
    for name, (low, high) in result.intervals.bounds.items():
        assert low < named[name] < high
    assert run(folds=2, seed=1).intervals.bounds != result.intervals.bounds


def test_json_has_stable_names():
    value = run(folds=4).to_json()
    assert json.loads(json.dumps(value)) == value
    assert (value["protocol"], value["images"], value["texts"], value["folds"]) == (
        *("4 folds of 25 images", 100, 300),
        4,
    )
    assert value["metrics"]["rsum"] == pytest.approx(
        sum(value["metrics"][f"{side}_r{cutoff}"] for side in ("i2t", "t2i") for cutoff in (1, 5, 10))
    )
    assert set(value["intervals"]["bounds"]) <= set(value["metrics"])
