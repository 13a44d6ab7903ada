from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.evaluation.metrics import pair_ranks
from diptych.evaluation.metrics.pair_ranks import PairCounter, QueryPositives
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.metrics.tiles import GroupedItems, group_items


def grouped(numbers):
    return GroupedItems(np.arange(len(numbers)), np.array(numbers))


def test_positives_of_a_query_are_consecutive():
    positives = QueryPositives(grouped([0, 0, 1]), grouped([0, 1, 1, 0, 1]))
    # answers in group order: two of group 0, then three of group 1
    assert positives.starts.tolist() == [0, 0, 2]
    assert positives.sizes.tolist() == [2, 2, 3]
    assert positives.offsets.tolist() == [0, 2, 4, 7]


def test_scores_and_counts_are_those_of_their_pairs():
    positives = QueryPositives(grouped([0, 0, 1]), grouped([0, 1, 1]))
    positives.set_scores(np.array([2, 0, 2, 1]), np.array([2, 0, 1, 0]), torch.tensor([0.4, 0.1, 0.3, 0.2]).double())
    thresholds, filled = positives.thresholds(slice(1, 3))
    assert filled.tolist() == [[True, False], [True, True]]
    assert thresholds.tolist() == [pytest.approx([0.2, np.inf]), pytest.approx([0.3, 0.4])]
    positives.add_counts(slice(1, 3), torch.tensor([5, 6, 7]))
    positives.add_counts(slice(2, 3), torch.tensor([1, 1]))
    assert positives.counts.tolist() == [0, 5, 7, 8]


@st.composite
def cases(draw: st.DrawFn):
    groups = range(draw(st.integers(1, 4)))
    images = draw(st.permutations([group for group in groups for _ in range(draw(st.integers(1, 3)))]))
    texts = draw(st.permutations([group for group in groups for _ in range(draw(st.integers(1, 6)))]))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    scores = random.integers(0, 4, (len(images), len(texts))).astype(draw(st.sampled_from([np.float16, np.float64])))
    return scores, np.array(images), np.array(texts), draw(st.integers(1, 40))


def count_pair_by_pair(scores, query_groups, answer_groups):
    """For each query and each of its positives, in the order of group names, the negatives that reach its score."""
    found = []
    for query in np.argsort(query_groups, kind="stable"):
        negatives = scores[query, answer_groups != query_groups[query]]
        found += [int((negatives >= score).sum()) for score in scores[query, answer_groups == query_groups[query]]]
    return found


@settings(max_examples=40)
@given(cases(), st.sampled_from([0, 2, 99]))
def test_counts_equal_those_of_each_pair_alone(case, max_comparisons):
    scores, images, texts, block = case
    score = matrix_score(torch.from_numpy(scores))
    rows = np.arange(len(images)), np.arange(len(texts))
    # groups in the order of their first image, as the counter numbers them
    order = {group: number for number, group in enumerate(dict.fromkeys(images.tolist()))}
    images, texts = (np.array([order[group] for group in groups]) for groups in (images, texts))
    counter = PairCounter(score, *group_items(score, images, texts, *rows), block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_ranks, "MAX_COMPARISONS", max_comparisons)  # by search, mixed, and by comparison
        counter.run()
    assert counter.image_queries.counts.tolist() == count_pair_by_pair(scores, images, texts)
    assert counter.text_queries.counts.tolist() == count_pair_by_pair(scores.T, texts, images)
