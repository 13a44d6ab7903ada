from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.analyses.cross_retrieval import INTERVALS, CrossRetrieval, cross_retrieval
from diptych.evaluation.metrics import pair_ranks
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import matrix_score

ALL = [-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf]
TIES = st.sampled_from(ALL)


@st.composite
def ties(draw: st.DrawFn, *shape: int) -> np.ndarray:
    """All of these values, two or three, or a single one all over a matrix; drawing each entry would be slow."""
    values = np.array(draw(st.lists(TIES, min_size=1, max_size=3) | st.just(ALL)), np.float32)
    return np.random.default_rng(draw(st.integers(0, 2**32))).choice(values, shape)


@st.composite
def cases(draw: st.DrawFn):
    """Scores with many ties, two or more groups of any size in any order, and a block."""
    names = draw(st.lists(st.integers(-9, 9), min_size=2, max_size=5, unique=True))
    images = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 3)))]))
    texts = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 6)))]))
    scores = draw(ties(len(images), len(texts)))
    return scores, np.array(images), np.array(texts), draw(st.integers(1, 40))


def slow(scores, images, texts):
    """Every positive pair with its two ranks and the stretched maximum, one at a time."""
    found = []
    for image, text in np.ndindex(*scores.shape):
        if images[image] == texts[text]:
            own = scores[image, text]
            against_images, against_texts = scores[images != texts[text], text], scores[image, texts != images[image]]
            first, second = 1 + (against_images >= own).sum(), 1 + (against_texts >= own).sum()
            most = max(len(against_images), len(against_texts))
            stretched = max((first - 1) / len(against_images), (second - 1) / len(against_texts)) * most
            found.append((image, text, first, second, pytest.approx(1 + stretched)))
    return found


@settings(max_examples=40)
@given(cases(), st.sampled_from([0, 2, 99]))
def test_ranks_equal_those_of_each_pair_alone(case, compared):
    scores, images, texts, block = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_ranks, "MAX_COMPARISONS", compared)  # by search, mixed, and by comparison
        found = cross_retrieval(matrix_score(torch.from_numpy(scores)), images, texts, block=block)
    columns = (found.images, found.texts, found.image_ranks, found.text_ranks, found.cross_ranks)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == slow(scores, images, texts)


@settings(max_examples=15)
@given(st.integers(2, 9), st.integers(0, 5), st.integers(1, 200))
def test_five_texts_per_image_give_the_papers_formula_exactly(images, seed, block):
    scores = torch.randn(images, 5 * images, generator=torch.Generator().manual_seed(seed))
    found = cross_retrieval(matrix_score(scores), np.arange(images), np.arange(5 * images) // 5, block=block)
    assert found.cross_ranks.tolist() == np.maximum(5 * found.image_ranks - 4, found.text_ranks).tolist()
    assert len(found.cross_ranks) == 5 * images


def test_the_best_pair_of_a_query_has_the_querys_rank():
    score = matrix_score(torch.randn(20, 60, generator=torch.Generator().manual_seed(0)))
    groups = np.arange(20), np.arange(60) // 3
    found, expected = cross_retrieval(score, *groups, block=77), ranks(score, *groups)
    assert found.text_ranks.reshape(20, 3).min(1).tolist() == expected.images.tolist()
    assert found.image_ranks.tolist() == expected.texts.tolist()


def test_percentages_count_each_pair_in_its_interval():
    cross = np.array([1.0, 1.0, 1.5, 5.0, 5.5, 10.0, 20.0, 50.0, 100.0, 200.0, 200.5, 9999.0])
    rows = np.arange(12)
    found = CrossRetrieval(rows, rows, rows, rows, cross)
    counts = [2, 2, 2, 1, 1, 1, 1, 2]
    assert (
        list(found.percentages)
        == list(INTERVALS)
        == ["1", "2–5", "6–10", "11–20", "21–50", "51–100", "101–200", "> 200"]
    )
    assert [round(share * 12 / 100) for share in found.percentages.values()] == counts
    told = json.loads(json.dumps(found.to_json()))
    assert told["pairs"] == 12
    assert list(told["percent_up_to"]) == ["1", "5", "10", "20", "50", "100", "200", "more"]
    assert told["percent_up_to"]["1"] == pytest.approx(100 / 6)


def test_a_collapsed_model_ranks_last():
    found = cross_retrieval(matrix_score(torch.zeros(60, 300)), np.arange(60), np.arange(300) // 5, block=999)
    assert set(found.cross_ranks) == {296.0}
    assert found.percentages["> 200"] == 100


def test_a_corpus_without_negatives_is_refused():
    with pytest.raises(ScoreError, match="of one group: there are no negatives"):
        cross_retrieval(matrix_score(torch.zeros(2, 3)), np.zeros(2, int), np.zeros(3, int))
