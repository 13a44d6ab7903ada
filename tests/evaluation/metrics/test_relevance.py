from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.metrics.average_precision import ranks_with_precision
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.relevance import NEVER, NOT_SEARCHED, Relevance, positive_ranks
from diptych.evaluation.metrics.scores import embedding_score, matrix_score

TIES = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf])
KINDS = st.sampled_from([np.float16, np.float32, np.float64])


@st.composite
def cases(draw: st.DrawFn):
    """Scores with many ties, and lists of positives for some of the queries, in any order, that may be incomplete."""
    images, texts = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    side = draw(st.sampled_from(["images", "texts"]))
    queries, answers = (images, texts) if side == "images" else (texts, images)
    scores = np.array(draw(st.lists(TIES, min_size=images * texts, max_size=images * texts)), draw(KINDS))
    rows = st.integers(0, answers - 1) | st.just(NOT_SEARCHED)
    lists = draw(
        st.dictionaries(st.integers(0, queries - 1), st.lists(rows, min_size=1, max_size=9, unique=True), min_size=1)
    )
    return scores.reshape(images, texts), lists, side, draw(st.integers(1, 40))


def walked(scores, lists):
    """Walk down each query's list, negatives first among equals, and note the places of the positives."""
    found = []
    for query, positives in lists.items():
        listed = sorted(range(scores.shape[1]), key=lambda answer: (-scores[query, answer], answer in positives))
        places = [place for place, answer in enumerate(listed, 1) if answer in positives]
        found += places + [NEVER] * (len(positives) - len(places))
    return found


@given(cases())
def test_ranks_are_the_places_in_each_list(case):
    scores, lists, side, block = case
    found = positive_ranks(matrix_score(torch.from_numpy(scores)), Relevance.from_lists(lists), side, block=block)
    assert found.tolist() == walked(scores.astype(np.float64) if side == "images" else scores.T.astype(float), lists)


@settings(max_examples=20)
@given(st.integers(0, 999))
def test_lists_of_groups_give_the_ranks_of_groups(seed):
    random = np.random.default_rng(seed)
    image_groups, text_groups = random.permutation([0, 0, 1, 2, 2, 2]), random.permutation([0, 1, 1, 2, 0, 1, 2])
    score = matrix_score(torch.from_numpy(random.integers(0, 4, (6, 7)).astype(np.float32)))
    expected, by_place = ranks(score, image_groups, text_groups), ranks_with_precision(score, image_groups, text_groups)
    for side, groups, others in (("images", image_groups, text_groups), ("texts", text_groups, image_groups)):
        lists = {query: np.flatnonzero(others == group).tolist() for query, group in enumerate(groups)}
        relevance = Relevance.from_lists(lists)
        found = positive_ranks(score, relevance, side)
        assert found[relevance.starts].tolist() == getattr(expected, side).tolist()
        place = 1 + np.arange(len(found)) - np.repeat(relevance.starts, relevance.sizes)
        precisions = np.add.reduceat(place / found, relevance.starts) / relevance.sizes
        assert precisions.tolist() == pytest.approx(getattr(by_place, f"{side.removesuffix('s')}_precisions").tolist())


@pytest.mark.parametrize("side", ["images", "texts"])
def test_blocks_change_nothing(side):
    random = torch.Generator().manual_seed(0)
    images, texts = (torch.randint(-2, 3, (count, 5), generator=random).float() for count in (20, 30))
    score = embedding_score(lambda some, others: some @ others.T, images, texts)
    queries, answers = (20, 30) if side == "images" else (30, 20)
    lists = {query: [query % answers, (query + 3) % answers] for query in range(queries)}
    found = [positive_ranks(score, Relevance.from_lists(lists), side, block=block).tolist() for block in (1, 77, 10**6)]
    assert found[0] == found[1] == found[2]


def test_a_positive_that_is_not_searched_counts_but_is_never_found():
    relevance = Relevance.from_lists({0: [NOT_SEARCHED], 1: [NOT_SEARCHED, 0]})
    assert relevance.sizes.tolist() == [1, 2]
    score = matrix_score(torch.tensor([[0.1, 0.2], [0.9, 0.3]]))
    assert positive_ranks(score, relevance, "images").tolist() == [NEVER, 1, NEVER]


def test_a_query_without_positives_is_refused():
    with pytest.raises(ScoreError, match=r"^query 7 has no positive; leave it out"):
        Relevance.from_lists({3: [1], 7: []})


@pytest.mark.parametrize("side", ["images", "texts"])
def test_a_score_that_is_not_a_number_is_named(side):
    scores = torch.zeros(3, 4)
    scores[1, 2] = torch.nan
    queries = Relevance.from_lists({1: [0], 2: [0]})
    with pytest.raises(ScoreError, match=r"^image 1 and text 2: their score is not a number \(rows count from 0\)$"):
        positive_ranks(matrix_score(scores), queries, side)
    infinite = torch.tensor([[torch.inf, -torch.inf]])  # its sum is not a number, but it is a score
    assert positive_ranks(matrix_score(infinite), Relevance.from_lists({0: [1]}), "images").tolist() == [2]
